// Search: keys by pattern and type, entries by field over a range; results arrive while the search runs.
import { html, useState, useEffect, useMemo, useRef, lines, link, number, size, moment, toPosition } from "./base.js";
import { Card, Choice, Table, EntryCells, Problem, Empty, keyLink, knownStreams, streamChoices } from "./parts.js";
import { SavedFilters } from "./saved.js";

export function useSearch() {
  const [state, set] = useState({ rows: [], progress: null, done: null, error: "", running: false });
  const cancel = useRef(null);
  const stop = () => { if (cancel.current) cancel.current.abort(); set((old) => ({ ...old, running: false, stopped: old.running })); };
  useEffect(() => () => { if (cancel.current) cancel.current.abort(); }, []);
  const run = async (path, values) => {
    if (cancel.current) cancel.current.abort();
    const own = (cancel.current = new AbortController());
    let rows = [], due = 0;
    set({ rows, progress: null, done: null, error: "", running: true });
    try {
      await lines(path, values, (item) => {
        if (own.signal.aborted) return;
        if (item.found) { rows = [...rows, item.found]; if (performance.now() > due) { due = performance.now() + 120; set((old) => ({ ...old, rows })); } }
        else if (item.progress) set((old) => ({ ...old, rows, progress: item.progress }));
        else if (item.done) set((old) => ({ ...old, rows, progress: null, done: item.done, running: false }));
        else if (item.error) set((old) => ({ ...old, error: item.error, running: false }));
      }, own.signal);
    } catch (error) { if (error.name !== "AbortError") set((old) => ({ ...old, error: error.message, running: false })); }
  };
  return { ...state, run, stop };
}

export function Status({ found }) {
  const { progress, done, running, rows } = found;
  return html`<div class="stack" style=${{ gap: "6px" }}>
    <p class="small muted" role="status">${done ? `${number(done.found)} found among ${number(done.examined)}${done.more ? ": the search ended at its limit" : ""}.` : progress ? `${number(progress.examined)} of ${number(progress.total)} examined, ${number(progress.found)} found${progress.at ? `, at ${progress.at}` : ""}` : running ? "Searching…" : found.stopped ? `Stopped; ${number(rows.length)} found.` : ""}</p>
    ${running ? html`<div class="meter" role="progressbar" aria-label="Progress of the search" aria-valuemin="0" aria-valuemax="100" aria-valuenow=${progress ? Math.round((100 * progress.examined) / Math.max(1, progress.total)) : 0}><i style=${{ width: `${progress ? (100 * progress.examined) / Math.max(1, progress.total) : 2}%` }}></i></div>` : null}
    <${Problem} text=${found.error} /></div>`;
}

// Keys by pattern and type; with `run`, the search begins at once.
export function KeySearch({ id, title, className, type: first = "", run, selected }) {
  const keys = useSearch();
  const [pattern, setPattern] = useState("*"), [type, setType] = useState(first);
  const search = (of) => keys.run("search/keys", { match: pattern || "*", type: of });
  useEffect(() => { if (run) search(first); }, []);
  return html`<${Card} title=${title} id=${id} className=${className}>
    <div class="stack"><form class="row" onSubmit=${(event) => { event.preventDefault(); search(type); }}>
      <label for="pattern">Pattern</label><input id="pattern" class="mono grow" value=${pattern} onInput=${(e) => setPattern(e.target.value)} />
      <label for="type">Type</label><select id="type" value=${type} onChange=${(e) => { setType(e.target.value); if (run) search(e.target.value); }}><option value="">any</option>${["stream", "string", "hash", "list", "set", "zset"].map((one) => html`<option key=${one}>${one}</option>`)}</select>
      ${keys.running ? html`<button type="button" onClick=${keys.stop}>Stop</button>` : html`<button class="primary" type="submit">Search</button>`}</form>
      <${Status} found=${keys} />
      ${keys.rows.length ? html`<${Table} label="Keys found" rows=${keys.rows} most=${1000} keyOf=${(one) => one.key} rowClass=${(one) => (one.key === selected ? "on" : "")} columns=${[
        { name: "Key", of: (one) => one.key, cell: keyLink },
        { name: "Type", of: (one) => one.type }, { name: "Memory", right: true, of: (one) => one.bytes ?? -1, cell: (one) => size(one.bytes) }]} />` : keys.done ? html`<${Empty}>No key matches.<//>` : null}</div><//>`;
}

export default function SearchView({ values, overview }) {
  const choices = useMemo(() => streamChoices(overview), [overview]);
  const entries = useSearch();
  const [stream, setStream] = useState(values.key), [where, setWhere] = useState(""), [start, setStart] = useState(""), [end, setEnd] = useState("");
  const [bad, setBad] = useState("");
  useEffect(() => { if (stream === undefined && choices.length) setStream(choices[0].name); }, [choices]);
  const byField = (event) => {
    event.preventDefault();
    const range = [toPosition(start), toPosition(end)];
    setBad(range.includes(null) ? "From or To is neither an ID nor a time." : "");
    if (!range.includes(null)) entries.run("search/entries", { key: stream || "", where, start: range[0] || "-", end: range[1] || "+" });
  };
  return html`<div class="grid">
    <${KeySearch} title="Keys" id="h-keys" className="s6" />
    <${Card} title="Entries of a stream" id="h-found" className="s6">
      <div class="stack"><form class="stack" onSubmit=${byField}>
        <div class="row"><${Choice} id="of" label="Stream" className="grow" value=${stream || ""} options=${choices} note=${knownStreams(overview)} onInput=${setStream} onPick=${setStream} /></div>
        <div class="row"><label for="where">Filters</label><input id="where" class="mono grow" placeholder="carrier=UA, delay>30" value=${where} onInput=${(e) => setWhere(e.target.value)} /><${SavedFilters} stream=${stream} where=${where.trim() ? [where.trim()] : []} onUse=${(found) => setWhere(found.join(", "))} /></div>
        <div class="row"><label for="from">From</label><input id="from" size="16" placeholder="ID or time" value=${start} onInput=${(e) => setStart(e.target.value)} /><label for="until">To</label><input id="until" size="16" placeholder="ID or time" value=${end} onInput=${(e) => setEnd(e.target.value)} />
          ${entries.running ? html`<button type="button" onClick=${entries.stop}>Stop</button>` : html`<button class="primary" type="submit">Search</button>`}<span class="bad small" role="status">${bad}</span></div></form>
        <${Status} found=${entries} />
        ${entries.rows.length ? html`<${Table} label="Entries found" rows=${entries.rows} most=${1000} keyOf=${(one) => one.id} columns=${[
          { name: "Entry", cell: (one) => html`<a class="mono nowrap" href=${link("stream", { key: stream, at: one.id })}>${one.id}</a>` },
          { name: "Time (UTC)", cell: (one) => html`<span class="nowrap muted">${moment(one.ms)}</span>` },
          { name: "Fields", cell: (one) => html`<${EntryCells} fields=${one.fields} most=${5} />` }]} />` : entries.done ? html`<${Empty}>No entry matches.<//>` : null}</div><//>
  </div>`;
}
