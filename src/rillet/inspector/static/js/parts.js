// Parts that several views share.
import { html, useState, useEffect, useRef, useMemo, get, go } from "./base.js";

export const Card = ({ title, children, className = "", tools, id }) => html`
  <section class="card ${className}" aria-labelledby=${id}>
    <header><h2 id=${id} class="grow">${title}</h2>${tools}</header>
    <div class="body">${children}</div>
  </section>`;

export const Problem = ({ text }) => (text ? html`<p class="note bad" role="alert">${text}</p>` : null);
export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

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

// The name of a key, with completion from the streams (or any text).
export function KeyPicker({ view, value, streams, other, label = "Stream" }) {
  const [text, setText] = useState(value || "");
  useEffect(() => setText(value || ""), [value]);
  const submit = (event) => { event.preventDefault(); if (text) go(view, { ...other, key: text }); };
  return html`<form class="row" onSubmit=${submit} role="search" aria-label="Choose a key">
    <label for="key">${label}</label>
    <input id="key" list="keys" value=${text} size="26" autocomplete="off" spellcheck=${false} class="mono"
      onInput=${(e) => setText(e.target.value)}
      onChange=${(e) => { if (streams.includes(e.target.value)) go(view, { ...other, key: e.target.value }); }} />
    <datalist id="keys">${streams.map((name) => html`<option value=${name} key=${name} />`)}</datalist>
    <button type="submit">Open</button>
  </form>`;
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
      plot.current = new Plot({ width: place.current.clientWidth || 300, height, legend: { show: false }, ...made }, data, place.current);
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

// A modal dialog; the browser keeps the focus inside, and Escape closes it.
export function Dialog({ title, onClose, children }) {
  const place = useRef(null);
  useEffect(() => { const one = place.current; if (one && !one.open) one.showModal(); return () => one && one.open && one.close(); }, []);
  return html`<dialog ref=${place} onClose=${onClose} aria-labelledby="dialog-title">
    <div class="stack"><h2 id="dialog-title">${title}</h2>${children}</div></dialog>`;
}

// The names of the streams, asked for once a minute at most.
let names = null, namesAt = 0;
export function useStreams() {
  const [found, set] = useState(names || []);
  useEffect(() => {
    if (names && Date.now() - namesAt < 60000) return;
    namesAt = Date.now();
    get("streams").then((data) => { names = data.streams; set(names); }, () => set(names || []));
  }, []);
  return found;
}

export const EntryCells = ({ fields, most = 4 }) => (fields === null
  ? html`<span class="badge warn">entry deleted</span>`
  : html`<span class="mono">${fields.slice(0, most).map(([name, value], at) => html`<span key=${at}><span class="muted">${name}=</span>${value.slice(0, 60)} </span>`)}${fields.length > most ? html`<span class="muted">…</span>` : null}</span>`);

// The whole entry, with long values, bytes and JSON trees.
export function EntryDetail({ stream, id, onClose, at = "stream" }) {
  const [data, set] = useState(null), [error, setError] = useState("");
  useEffect(() => {
    set(null); setError("");
    get("entry", { key: stream, id }).then(set, (one) => setError(one.message));
  }, [stream, id]);
  return html`<aside class="card detail" aria-label="Entry ${id}">
    <header><h2 class="mono grow">${id}</h2>
      <a class="button" href=${`#/bytes?key=${encodeURIComponent(stream)}&at=${id}`}>Bytes</a>
      <button type="button" onClick=${onClose} aria-label="Close the entry">✕</button></header>
    <div class="body"><${Problem} text=${error} />
      ${data ? html`<p class="muted small">${new Date(data.ms).getTime() ? new Date(data.ms).toISOString() : ""}</p>
        <dl>${data.fields.map(([name, value, bytes, flags], n) => html`<div key=${n}>
          <dt>${name} <span class="small">· ${bytes} B${flags.includes("c") ? ", cut" : ""}</span></dt>
          <dd tabindex="0">${data.details[n].json ? html`<div class="tree"><${JsonTree} node=${data.details[n].json} /></div>` : value}
            ${value.includes("\\x") ? html`<div class="muted small">${data.details[n].hex}</div>` : null}</dd></div>`)}</dl>` : html`<p class="muted">Loading…</p>`}
    </div></aside>`;
}
