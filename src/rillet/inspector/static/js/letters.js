// Dead letters: the streams that hold them, how many there are by origin and reason, and the workbench to requeue or drop.
import { html, useState, useEffect, useGet, get, go, link, number, duration } from "./base.js";
import { Card, EntryCells, EntryDetail, Name, Problem, Table, ago, knownStreams } from "./parts.js";
import { ACTIONS, Action } from "./actions.js";

const Origin = ({ text }) => (text === null ? html`<span class="muted">–</span>` : html`<span class="mono"><${Name} text=${text} /></span>`);

function Choose({ overview }) {
  // Again as soon as streams were found that the first answer does not know.
  const { data, error, again } = useGet("letters/streams", {}, [overview && overview.find.complete, overview && overview.streams.length]);
  return html`<${Card} title="Choose a stream of dead letters" id="h-choose" tools=${html`<button type="button" onClick=${again}>Refresh</button>`}>
    <${Problem} text=${error} />
    ${data ? html`<${Table} label="Streams of dead letters" rows=${data.streams} keyOf=${(one) => one.name} onRow=${(one) => go("letters", { key: one.name })} empty=${data.complete ? "No stream has dead letters." : knownStreams(overview) || "Searching for streams…"} columns=${[
      { name: "Stream", of: (one) => one.name, cell: (one) => html`<a class="mono" href=${link("letters", { key: one.name })}><${Name} text=${one.name} /></a>` },
      { name: "Letters", right: true, of: (one) => one.length, cell: (one) => number(one.length) },
      { name: "Last one", right: true, of: (one) => one.last, cell: (one) => ago(one.last) },
      { name: "Oldest", right: true, of: (one) => one.first, cell: (one) => ago(one.first) },
      { name: "The last one is of", cell: (one) => html`<${Origin} text=${one.letter.stream} />` },
      { name: "Reason", cell: (one) => (one.letter.reason === null ? "–" : html`<${Name} text=${one.letter.reason} />`) }]} />` : error ? null : html`<p class="muted" role="status">Searching for streams…</p>`}
    <p class="muted small">A stream is listed if its last entry is a dead letter. Consumers write them: <code>messages(max_deliveries=5, dead_letters="orders.dead")</code>, and so does <i>Dead-letter</i> in Groups.</p><//>`;
}

const same = (a, b) => a !== null && ["stream", "group", "reason"].every((name) => a[name] === b[name]);

function Counts({ name, chosen, choose, turn }) {
  const { data, error } = useGet("letters/counts", { key: name }, [name, turn], name);
  return html`<${Card} title="By origin and reason" id="h-counts" tools=${data && !data.complete ? html`<span class="muted small">among the newest ${number(data.examined)}</span>` : null}>
    <${Problem} text=${error} />
    ${data ? html`<${Table} label="Dead letters by origin and reason" rows=${data.rows} keyOf=${(one) => `${one.stream}\n${one.group}\n${one.reason}`} rowClass=${(one) => (same(chosen, one) ? "on" : "")} onRow=${(one) => choose(same(chosen, one) ? null : one)} empty="The stream has no entries." columns=${[
      { name: "Reason", of: (one) => one.reason, cell: (one) => html`<button type="button" class="link" aria-pressed=${same(chosen, one)} onClick=${(e) => { e.stopPropagation(); choose(same(chosen, one) ? null : one); }}><${Name} text=${one.reason ?? "not stated"} /></button>` },
      { name: "Stream", of: (one) => one.stream, cell: (one) => html`<${Origin} text=${one.stream} />` },
      { name: "Group", of: (one) => one.group, cell: (one) => html`<${Origin} text=${one.group} />` },
      { name: "Letters", right: true, of: (one) => one.entries, cell: (one) => number(one.entries) },
      { name: "Most deliveries", right: true, of: (one) => one.deliveries, cell: (one) => one.deliveries ?? "–" },
      { name: "Last one", right: true, of: (one) => one.last, cell: (one) => ago(one.last) }]} />` : null}<//>`;
}

function Letters({ name, place, chosen, turn, finished }) {
  const [rows, setRows] = useState([]), [next, setNext] = useState(null), [error, setError] = useState("");
  const [selected, select] = useState(new Set()), [action, setAction] = useState(null), [done, setDone] = useState(""), [shown, show] = useState(null);
  const where = chosen === null ? {} : Object.fromEntries(["stream", "group", "reason"].map((one) => [one, chosen[one] ?? undefined]));
  // The parameter of a name may be empty; that of a letter without one is absent.
  const load = (end, old) => get("letters", { key: name, ...where, end, count: 50 }).then((one) => { setRows([...old, ...one.entries]); setNext(one.next); setError(""); }, (one) => setError(one.message));
  useEffect(() => { select(new Set()); show(null); load("+", []); }, [name, chosen, turn]);
  const toggle = (id) => select((old) => { const now = new Set(old); if (!now.delete(id)) now.add(id); return now; });
  const all = rows.length > 0 && rows.every((one) => selected.has(one.id));
  const columns = [
    { name: "", cell: (one) => html`<input type="checkbox" aria-label=${`Select ${one.id}`} checked=${selected.has(one.id)} onClick=${(e) => e.stopPropagation()} onChange=${() => toggle(one.id)} />` },
    { name: "Letter", of: (one) => one.ms, cell: (one) => html`<button type="button" class="link nowrap" onClick=${(e) => { e.stopPropagation(); show(one.id); }}>${one.id}</button>` },
    { name: "Age", right: true, of: (one) => -one.ms, cell: (one) => html`<span class="nowrap">${duration(Date.now() - one.ms)}</span>` },
    { name: "Of", of: (one) => (one.letter ? one.letter.stream : ""), cell: (one) => html`<${Origin} text=${one.letter ? one.letter.stream : null} />` },
    { name: "Group", of: (one) => (one.letter ? one.letter.group : ""), cell: (one) => html`<${Origin} text=${one.letter ? one.letter.group : null} />` },
    { name: "Reason", of: (one) => (one.letter ? one.letter.reason : ""), cell: (one) => (one.letter && one.letter.reason !== null ? html`<${Name} text=${one.letter.reason} />` : "–") },
    { name: "Deliveries", right: true, of: (one) => (one.letter ? one.letter.deliveries : null), cell: (one) => (one.letter && one.letter.deliveries) ?? "–" },
    { name: "The entry", cell: (one) => html`<${EntryCells} fields=${one.letter ? one.fields.slice(0, one.letter.own) : one.fields} most=${6} />` },
  ];
  const ids = rows.filter((one) => selected.has(one.id)).map((one) => one.id).reverse();  // oldest first: their order stays
  return html`<${Card} title="Letters" id="h-letters" tools=${html`<a class="button" href=${link("stream", { key: name })}>As a stream</a>`}>
    <div class="stack">
      <div class="row" role="toolbar" aria-label="Actions on the selected letters">
        <button type="button" disabled=${!rows.length} onClick=${() => select(all ? new Set() : new Set(rows.map((one) => one.id)))}>${all ? "Select none" : `Select ${rows.length}`}</button>
        ${["requeue-letters", "drop"].map((one) => html`<button type="button" key=${one} disabled=${!selected.size} onClick=${() => setAction(one)}>${ACTIONS[one].title}</button>`)}
        <span class="muted small" role="status">${done || (selected.size ? `${selected.size} selected` : "")}</span></div>
      <${Problem} text=${error} />
      <div class="split ${shown ? "open" : ""}"><div>
        <${Table} label="Dead letters" columns=${columns} rows=${rows} most=${2000} keyOf=${(one) => one.id} rowClass=${(one) => (selected.has(one.id) ? "on" : "")} onRow=${(one) => toggle(one.id)} empty="No letters here." />
        ${next ? html`<p class="row"><button type="button" onClick=${() => load(next, rows)}>More</button></p>` : null}</div>
        ${shown ? html`<${EntryDetail} stream=${name} id=${shown} onClose=${() => show(null)} />` : null}</div></div>
    ${action ? html`<${Action} name=${action} request=${{ key: name, ids }} place=${place} onDone=${(text) => { setAction(null); setDone(text); finished(); }} onClose=${() => setAction(null)} />` : null}<//>`;
}

export default function LettersView({ place, values, overview }) {
  const name = values.key;
  const [chosen, choose] = useState(null), [turn, setTurn] = useState(0);
  useEffect(() => choose(null), [name]);
  if (name === undefined) return html`<div class="grid"><${Choose} overview=${overview} /></div>`;
  return html`<div class="grid">
    <div class="row"><a href=${link("letters", {})}>All streams of dead letters</a> <span class="muted">/</span> <b class="mono"><${Name} text=${name} /></b></div>
    <${Counts} name=${name} chosen=${chosen} choose=${choose} turn=${turn} />
    <${Letters} key=${name} name=${name} place=${place} chosen=${chosen} turn=${turn} finished=${() => setTurn(turn + 1)} /></div>`;
}
