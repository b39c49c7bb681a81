// Parts that several views share.
import { html, useState, useEffect, useRef, useMemo, get, go, link, number, counted, size, perTime, duration, moment, msOf, isTime, named } from "./base.js";

export const Card = ({ title, children, className = "", tools, id }) => html`
  <section class="card ${className}" aria-labelledby=${id}>
    <header><h2 id=${id} class="grow">${title}</h2>${tools}</header>
    <div class="body">${children}</div>
  </section>`;

export const Problem = ({ text }) => (text ? html`<p class="note bad" role="alert">${text}</p>` : null);
export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

// A name of any length: cut by the style sheet, whole in the tooltip.
export const Name = ({ text }) => (text === "" ? html`<i class="muted nowrap">(empty name)</i>` : html`<span class="cut" title=${text}>${text}</span>`);

// A table with sortable columns: {name, of(row), cell(row), right, label}.
export function Table({ columns, rows, label, empty, sort: first, most = 200, keyOf, rowClass, onRow }) {
  const [sort, setSort] = useState(first || null);
  const sorted = useMemo(() => {
    if (!sort) return rows;
    const column = columns.find((one) => one.name === sort[0]);
    if (!column || !column.of) return rows;
    const value = (row) => { const v = column.of(row); return v === null || v === undefined ? -Infinity : v; };
    return [...rows].sort((a, b) => { const x = value(a), y = value(b); return (x < y ? -1 : x > y ? 1 : 0) * (sort[1] ? -1 : 1); });
  }, [rows, sort, columns]);
  if (!rows.length) return html`<${Empty}>${empty || "Nothing yet."}<//>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><table>
    <caption class="sr">${label}</caption>
    <thead><tr>${columns.map((one) => html`
      <th scope="col" key=${one.name} class=${one.right ? "right" : ""}
          aria-sort=${sort && sort[0] === one.name ? (sort[1] ? "descending" : "ascending") : undefined}>
        ${one.of ? html`<button type="button" onClick=${() => setSort([one.name, !(sort && sort[0] === one.name && sort[1])])}>
          ${one.name}${sort && sort[0] === one.name ? (sort[1] ? " ↓" : " ↑") : ""}</button>` : one.name}
      </th>`)}</tr></thead>
    <tbody>${sorted.slice(0, most).map((row, at) => html`
      <tr key=${keyOf ? keyOf(row) : at} class=${rowClass ? rowClass(row) : ""} onClick=${onRow ? () => onRow(row) : undefined}>
        ${columns.map((one) => html`<td key=${one.name} class=${one.right ? "right" : ""}>${one.cell ? one.cell(row) : one.of(row)}</td>`)}
      </tr>`)}</tbody>
  </table>${rows.length > most ? html`<p class="muted small">and ${rows.length - most} more</p>` : null}</div>`;
}

// Rows in an order that does not change while the pointer or the focus is in their box: nobody clicks the wrong row.
export function useSteady(rows, keyOf, compare) {
  const order = useRef(new Map()), box = useRef(null);
  if (!box.current || !box.current.matches(":hover, :focus-within")) order.current = new Map([...rows].sort(compare).map((one, n) => [keyOf(one), n]));
  const at = (one) => order.current.get(keyOf(one)) ?? rows.length;
  return [[...rows].sort((a, b) => at(a) - at(b)), box];
}

// A field with a list to choose from: {name, note}. The list shows all of them until something is typed.
export function Choice({ id, label, value, options, note, onInput, onPick, size = 26, className = "" }) {
  const [open, setOpen] = useState(false), [typed, setTyped] = useState(false), [at, setAt] = useState(-1);
  const field = useRef(null), list = useRef(null);
  const word = value.toLowerCase();
  const found = useMemo(() => (typed && word ? options.filter((one) => one.name.toLowerCase().includes(word)) : options).slice(0, 500), [options, word, typed]);
  const show = () => { setTyped(false); setAt(-1); setOpen(true); };
  const pick = (one) => { setOpen(false); setAt(-1); setTyped(false); onPick(one.name); };
  useEffect(() => { const one = at >= 0 && list.current && list.current.children[at]; if (one) one.scrollIntoView({ block: "nearest" }); }, [at]);
  const keys = (event) => {
    if (event.key === "Escape" && open) { event.preventDefault(); setOpen(false); setAt(-1); }
    else if (event.key === "ArrowDown") { event.preventDefault(); if (open) setAt(Math.min(found.length - 1, at + 1)); else show(); }
    else if (event.key === "ArrowUp" && open) { event.preventDefault(); setAt(Math.max(-1, at - 1)); }
    else if (event.key === "Enter" && open) { if (found[at]) { event.preventDefault(); pick(found[at]); } else setOpen(false); }
  };
  return html`<span class="choice ${className}">
    <label for=${id}>${label}</label>
    <input id=${id} ref=${field} value=${value} size=${size} autocomplete="off" spellcheck=${false} class="mono grow" title=${value}
      role="combobox" aria-expanded=${open} aria-controls="${id}-list" aria-autocomplete="list" aria-activedescendant=${open && at >= 0 ? `${id}-${at}` : undefined}
      onInput=${(e) => { onInput(e.target.value); setTyped(true); setOpen(true); setAt(-1); }} onFocus=${show} onClick=${() => open || show()} onKeyDown=${keys} onBlur=${() => setTimeout(() => setOpen(false), 150)} />
    <button type="button" tabindex="-1" aria-label=${`Show the list: ${label}`} onMouseDown=${(e) => { e.preventDefault(); if (open) setOpen(false); else { field.current.focus(); show(); } }}>▾</button>
    <div class="options under" hidden=${!open}><ul id="${id}-list" ref=${list} role="listbox" aria-label=${label}>${found.map((one, n) => html`
        <li key=${one.name} id=${`${id}-${n}`} role="option" aria-selected=${n === at} onMouseDown=${(e) => { e.preventDefault(); pick(one); }}><${Name} text=${one.name} /> <span class="muted">${one.note}</span></li>`)}</ul>
      ${note || !found.length ? html`<p class="muted small">${[found.length ? "" : "Nothing matches.", note].filter(Boolean).join(" ")}</p>` : null}</div></span>`;
}

// What is known about the streams so far, in words: it is not silent about what it has not seen.
export function knownStreams(found) {
  if (!found) return "Searching for streams…";
  const { complete, seen, total, streams } = found.find;
  if (!complete) return `Searching for streams: ${number(seen)} of ${number(total)} keys`;
  return found.streams.length < streams ? `The ${number(found.streams.length)} longest of ${number(streams)} streams` : "";
}
// When a stream was last written: entries may have IDs that are no times, then a rate says that it is written now.
export const activeAt = (one) => Math.max(one.rate > 0 ? Date.now() - (one.age || 0) * 1000 : -1, isTime(msOf(one.last_id)) ? msOf(one.last_id) : -1);
export const ago = (at) => (at < 0 ? "–" : `${duration(Math.max(0, Date.now() - at))} ago`);
const byActivity = (a, b) => activeAt(b) - activeAt(a) || (b.rate || 0) - (a.rate || 0) || b.length - a.length;
const noteOf = (one) => counted(one.length, "entry", "entries");
export const streamChoices = (found) => (found ? [...found.streams].sort(byActivity).map((one) => ({ name: one.name, note: noteOf(one) })) : []);
// A key, with a link to the view of its type.
export const keyLink = (one) => html`<a class="mono" href=${link(one.type === "stream" ? "stream" : "keys", { key: one.key })}><${Name} text=${one.key} /></a>`;
export const keyChoices = (found) => [...streamChoices(found), ...(found ? found.keys.largest.filter((one) => one.type !== "stream").map((one) => ({ name: one.key, note: one.type })) : [])];

// The key of a view.
export function KeyPicker({ view, value, overview, label = "Stream" }) {
  const [text, setText] = useState(value || "");
  const options = useMemo(() => (view === "bytes" || view === "keys" ? keyChoices : streamChoices)(overview), [overview, view]);
  useEffect(() => setText(value || ""), [value]);
  const open = (name) => { setText(name); go(view, { key: name }); };
  const submit = (event) => { event.preventDefault(); if (text || options.some((one) => one.name === "")) open(text); };
  return html`<form class="row" onSubmit=${submit} role="search" aria-label="Choose a key">
    <${Choice} id="key" label=${label} value=${text} options=${options} note=${knownStreams(overview)} onInput=${setText} onPick=${open} />
    <button type="submit">Open</button>
  </form>`;
}

// A stream was found, and its figures are still to be read: "…".
const read = (cell) => (s) => (s.age === null ? html`<span class="muted" title="not read yet">…</span>` : cell(s));
// The columns of a list of streams, whose names lead to a view.
export const streamColumns = (view) => [
  { name: "Stream", of: (s) => s.name, cell: (s) => html`<a class="mono" href=${link(view, { key: s.name })}><${Name} text=${s.name} /></a>` },
  { name: "Entries", right: true, of: (s) => s.length, cell: (s) => number(s.length) },
  { name: "Memory", right: true, of: (s) => s.bytes ?? -1, cell: read((s) => html`<span title=${s.memory.note}>${size(s.bytes)}</span>`) },
  { name: "Rate", right: true, of: (s) => s.rate ?? -1, cell: read((s) => (s.rate === null ? "–" : perTime(s.rate))) },
  { name: "Last entry", right: true, of: (s) => msOf(s.last_id), cell: read((s) => ago(s.last_id && isTime(msOf(s.last_id)) ? msOf(s.last_id) : -1)) },
  { name: "Groups", right: true, of: (s) => s.groups.length, cell: read((s) => number(s.groups.length)) },
];

// A view without a key: the streams to choose from, the last written one first.
export function ChooseStream({ view, overview }) {
  const rows = overview ? overview.streams : [];
  const only = overview && overview.find.complete && rows.length === 1 ? rows[0].name : null;
  useEffect(() => { if (only !== null) go(view, { key: only }, true); }, [only]);
  const [steady, box] = useSteady(rows, (one) => one.name, byActivity);
  const columns = useMemo(() => streamColumns(view), [view]);
  return html`<${Card} title="Choose a stream" id="h-choose" tools=${html`<span class="muted small" role="status">${rows.length ? knownStreams(overview) : ""}</span>`}>
    <div ref=${box}><${Table} label="Streams" rows=${steady} keyOf=${(one) => one.name} onRow=${(one) => go(view, { key: one.name })} most=${500} empty=${knownStreams(overview) || "There are no streams."} columns=${columns} /></div><//>`;
}

// A chart of uPlot, which is loaded when the first one is shown.
let plotting = null;
export const loadPlot = () => (plotting = plotting || import("../vendor/uplot.js").then((module) => {
  const sheet = document.createElement("link");
  sheet.rel = "stylesheet"; sheet.href = "/static/vendor/uplot.css";
  document.head.append(sheet);
  return module.default;
}));
export const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function Chart({ data, options, height = 160, label, theme }) {
  const place = useRef(null), plot = useRef(null);
  useEffect(() => {
    let gone = false, watcher = null;
    loadPlot().then((Plot) => {
      if (gone || !place.current) return;
      const axis = { stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 }, font: "11px system-ui" };
      const made = options({ axis, color });
      plot.current = new Plot({ width: place.current.clientWidth || 300, height, legend: { show: false }, tzDate: (at) => Plot.tzDate(new Date(at * 1000), "UTC"), ...made }, data, place.current);
      watcher = new ResizeObserver(() => plot.current && place.current && plot.current.setSize({ width: place.current.clientWidth, height }));
      watcher.observe(place.current);
    });
    return () => { gone = true; if (watcher) watcher.disconnect(); if (plot.current) plot.current.destroy(); plot.current = null; };
  }, [options, theme, height]);
  useEffect(() => { if (plot.current) plot.current.setData(data); }, [data]);
  return html`<div class="chart" ref=${place} role="img" aria-label=${label} style=${{ height: `${height}px` }}></div>`;
}

// A JSON tree: ["object", [[name, node]]], ["array", [node]], [kind, text].
export function JsonTree({ node, depth = 0 }) {
  const [kind, value, total] = node;
  if (kind !== "object" && kind !== "array") return html`<span class="t-${kind}">${kind === "string" ? `"${value}"` : value}</span>`;
  if (!value.length) return html`<span>${kind === "object" ? "{}" : "[]"}</span>`;
  return html`<details open=${depth < 2}><summary>${kind === "object" ? `{${total || value.length}}` : `[${total || value.length}]`}</summary>
    <ul>${value.map((one, at) => html`<li key=${at}>${kind === "object"
      ? html`<span class="muted">${one[0]}: </span><${JsonTree} node=${one[1]} depth=${depth + 1} />`
      : html`<span class="muted">${at}: </span><${JsonTree} node=${one} depth=${depth + 1} />`}</li>`)}
    ${total ? html`<li class="muted">and ${total - value.length} more</li>` : null}</ul></details>`;
}

// A modal dialog; the browser keeps the focus inside, and Escape closes it. The focus begins at the element with
// data-first: in a dialog that confirms something this is Cancel, so that no key that is pressed twice confirms it.
export function Dialog({ title, onClose, children }) {
  const place = useRef(null);
  useEffect(() => {
    const one = place.current;
    if (one && !one.open) { one.showModal(); const first = one.querySelector("[data-first]"); if (first) first.focus(); }
    return () => one && one.open && one.close();
  }, []);
  return html`<dialog ref=${place} onClose=${onClose} aria-labelledby="dialog-title">
    <div class="stack"><h2 id="dialog-title">${title}</h2>${children}</div></dialog>`;
}

// The two buttons of such a dialog. Only the button itself runs: Enter in a field does not.
export const Confirm = ({ text, danger, disabled, onRun, first = true }) => html`<div class="row">
  <button type="button" data-first=${first ? "" : undefined} onClick=${(e) => e.target.closest("dialog").close()}>Cancel</button>
  <button type="button" class=${danger ? "danger" : "primary"} disabled=${disabled} onClick=${onRun}>${text}</button></div>`;

export const EntryCells = ({ fields, most = 4 }) => (fields === null
  ? html`<span class="badge warn">entry deleted</span>`
  : html`<span class="mono wrap">${fields.slice(0, most).map(([name, value], at) => html`<span key=${at}><span class="muted" title=${name}>${name.slice(0, 40)}=</span>${value.slice(0, 60)} </span>`)}${fields.length > most ? html`<span class="muted">…</span>` : null}</span>`);

async function copy(text) {
  await navigator.clipboard.writeText(text);
}

// Where a dead letter comes from.
export const LetterOrigin = ({ letter, stream }) => html`<p class="note small">A dead letter of <b><${Name} text=${letter.stream ?? "an unknown stream"} /></b>${letter.group !== null ? html`, group <b><${Name} text=${letter.group} /></b>` : null}${letter.deliveries !== null ? `, ${letter.deliveries} deliveries` : ""}${letter.reason !== null ? html`: ${letter.reason}` : null}. <a href=${link("letters", { key: stream })}>All of this stream</a></p>`;

// The whole entry, with long values, bytes and JSON trees.
export function EntryDetail({ stream, id, onClose, tools }) {
  const [data, set] = useState(null), [error, setError] = useState(""), [copied, setCopied] = useState("");
  useEffect(() => {
    set(null); setError(""); setCopied("");
    get("entry", { key: stream, id }).then(set, (one) => setError(one.message));
  }, [stream, id]);
  return html`<aside class="card detail" aria-label="Entry ${id}">
    <header><h2 class="mono grow">${id}</h2>
      <a class="button" href=${link("bytes", { key: stream, at: id })}>Bytes</a>
      <button type="button" onClick=${onClose} aria-label="Close the entry">✕</button></header>
    <div class="body"><${Problem} text=${error} />
      ${data ? html`<p class="muted small">${isTime(data.ms) ? `${moment(data.ms)} UTC` : ""}</p>
        <p class="row"><button type="button" onClick=${() => copy(JSON.stringify(Object.fromEntries(data.fields.map(([name, value]) => [name, value])), null, 2)).then(() => setCopied("copied"), () => setCopied("the browser refused"))}>Copy as JSON</button>${tools ? tools(data) : null}<span class="muted small" role="status">${copied}</span></p>
        ${data.letter ? html`<${LetterOrigin} letter=${data.letter} stream=${stream} />` : null}
        <dl>${data.fields.map(([name, value, bytes, flags], n) => html`<div key=${n}>
          <dt>${name === "" ? html`<${Name} text="" />` : name} <span class="small">· ${bytes} B${flags.includes("c") ? ", cut" : ""}</span></dt>
          <dd tabindex="0">${data.details[n].json ? html`<div class="tree"><${JsonTree} node=${data.details[n].json} /></div>` : value}
            ${value.includes("\\x") ? html`<div class="muted small">${data.details[n].hex}</div>` : null}</dd></div>`)}</dl>` : html`<p class="muted">Loading…</p>`}
    </div></aside>`;
}
