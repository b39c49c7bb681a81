// Keys: all keys by pattern and type, and the elements of one: a hash, a set, a sorted set, a list, a string.
import { html, useState, useEffect, useRef, get, go, link, number, size, duration } from "./base.js";
import { Card, JsonTree, Name, Problem, Empty, Table } from "./parts.js";
import { Action } from "./actions.js";
import { KeySearch } from "./search.js";

const PAGES = 50;
// Pages of elements: {data, rows, error, more()}. A cursor may return an element twice.
function useElements(key, match, reverse, turn) {
  const [state, set] = useState({ data: null, rows: [], error: "" });
  const now = useRef("");
  const subject = `${key}\n${match}\n${reverse}\n${turn}`;
  const load = (start, old, pages = 1) => get("value", { key, match, reverse: reverse ? "1" : "", start }).then((data) => {
    if (now.current !== subject) return;
    const seen = new Map(old.map((row) => [idOf(row), row]));
    for (const row of data.rows) seen.set(idOf(row), row);
    set({ data, rows: [...seen.values()], error: "" });
    // A page of a pattern has those that match, which may be none: look further, but not for ever.
    if (match && data.next && seen.size < old.length + 50 && pages < PAGES) load(data.next, [...seen.values()], pages + 1);
  }, (error) => now.current === subject && set({ data: null, rows: [], error: error.message }));
  useEffect(() => { now.current = subject; load("", []); }, [subject]);
  return { ...state, more: () => load(state.data.next, state.rows) };
}
// A row begins with an index or a rank, or with the name that is its identity.
const idOf = (row) => (Array.isArray(row[0]) ? row[0][0] : row[0]);
const Cell = ({ cell, name }) => (!Array.isArray(cell) ? (name === "Expires in (ms)" ? (cell === "" ? html`<span class="muted">–</span>` : html`<span title=${`${cell} ms`}>${duration(Number(cell))}</span>`) : cell)
  : html`<span class="mono"><${Name} text=${cell[0]} /></span>${cell[2].includes("c") ? html` <span class="muted small nowrap">${size(cell[1])}</span>` : null}`);

// A text, its JSON as a tree, and its first bytes if it is not text.
const Text = ({ found }) => html`<div class="stack detail">
  ${found.json ? html`<div class="tree"><${JsonTree} node=${found.json} /></div>` : html`<pre tabindex="0">${found.text}</pre>`}
  <p class="muted small">${number(found.bytes)} bytes${found.cut ? ", cut" : ""}${found.text.includes("\\x") ? ` · ${found.hex}` : ""}</p></div>`;

function Element({ name, at, shown, onClose }) {
  const [found, set] = useState(null), [error, setError] = useState("");
  useEffect(() => { set(null); setError(""); get("element", { key: name, element: at }).then(set, (one) => setError(one.message)); }, [name, at]);
  return html`<aside class="card detail" aria-label="Element ${shown}"><header><h2 class="mono grow"><${Name} text=${shown} /></h2><button type="button" onClick=${onClose} aria-label="Close the element">✕</button></header>
    <div class="body"><${Problem} text=${error} />${found ? html`<${Text} found=${found} />` : null}</div></aside>`;
}

function Value({ name, place }) {
  const [match, setMatch] = useState(""), [typed, setTyped] = useState(""), [reverse, setReverse] = useState(false), [turn, setTurn] = useState(0);
  const [shown, show] = useState(null), [action, setAction] = useState(false);
  const { data, rows, error, more } = useElements(name, match, reverse, turn);
  const names = data ? data.columns : [];
  // The member of a set is its own name; a rank or an index is not the name of a member.
  const nameOf = (row) => row.find(Array.isArray);
  const atOf = (row) => (data.type === "list" ? row[0] : nameOf(row)[0]);
  const cutName = (row) => data.type !== "list" && nameOf(row)[2].includes("c");
  const columns = names.map((title, n) => ({
    name: title.replace(" (ms)", ""), right: ["Rank", "Index", "Score", "Expires in (ms)"].includes(title),
    of: (row) => { const cell = row[n]; return Array.isArray(cell) ? cell[0] : Number.isNaN(Number(cell)) ? cell : Number(cell); },
    cell: (row) => (n === (Array.isArray(row[0]) ? 0 : 1) && !cutName(row) ? html`<button type="button" class="link" onClick=${(e) => { e.stopPropagation(); show([atOf(row), idOf(row)]); }}><${Cell} cell=${row[n]} /></button>` : html`<${Cell} cell=${row[n]} name=${title} />`),
  }));
  return html`<${Card} title=${html`<span class="mono"><${Name} text=${name} /></span>`} id="h-value" tools=${data ? html`
      ${data.matches ? html`<form class="row" onSubmit=${(e) => { e.preventDefault(); setMatch(typed.trim()); }}><label for="match">Pattern</label><input id="match" class="mono" size="14" placeholder="user:*" value=${typed} onInput=${(e) => setTyped(e.target.value)} /><button type="submit">Filter</button></form>` : null}
      ${data.type === "zset" ? html`<button type="button" aria-pressed=${reverse} disabled=${!!match} onClick=${() => setReverse(!reverse)}>Highest first</button>` : null}
      <button type="button" onClick=${() => setTurn(turn + 1)}>Refresh</button>
      <a class="button" href=${link("bytes", { key: name })}>Bytes</a>
      <button type="button" onClick=${() => setAction(true)}>Delete</button>` : null}>
    <div class="stack">
      <${Problem} text=${error} />
      ${data ? html`<p class="small muted">${data.type}${data.encoding ? `, ${data.encoding}` : ""}${data.length !== null ? ` · ${number(data.length)} ${data.type === "string" ? "bytes" : data.length === 1 ? "element" : "elements"}` : ""} · ${size(data.memory)} · ${data.ttl === null ? "does not expire" : `expires in ${duration(data.ttl)}`}</p>` : null}
      ${data && data.text ? html`<${Text} found=${data.text} />` : null}
      ${data && data.type === "stream" ? html`<p><a href=${link("stream", { key: name })}>The entries</a>, <a href=${link("groups", { key: name })}>the groups</a></p>` : null}
      ${data && !names.length && !data.text && data.type !== "stream" ? html`<${Empty}>This type has no table of elements: look at its bytes, or use the console.<//>` : null}
      ${shown ? html`<${Element} name=${name} at=${shown[0]} shown=${shown[1]} onClose=${() => show(null)} />` : null}
      ${names.length ? html`<div>
        <${Table} key=${`${name} ${match} ${reverse}`} label="Elements" columns=${columns} rows=${rows} most=${10000} keyOf=${idOf} empty=${match ? (data.next ? "No element matches so far." : "No element matches.") : "No elements."} rowClass=${(row) => (shown && idOf(row) === shown[1] ? "on" : "")} />
        ${data.next ? html`<p class="row"><button type="button" onClick=${more}>More</button><span class="muted small">${number(rows.length)} of ${number(data.length)}</span></p>` : null}</div>` : null}
    </div>
    ${action ? html`<${Action} name="delete-key" request=${{ key: name }} place=${place} onDone=${() => { setAction(false); go("keys", {}); }} onClose=${() => setAction(false)} />` : null}<//>`;
}

export default function KeysView({ place, values }) {
  const key = values.key;
  return html`<div class="grid">
    <${KeySearch} title="Choose a key" id="h-keys" className=${key === undefined ? "" : "s5"} type=${values.type || ""} run selected=${key} />
    ${key === undefined ? null : html`<div class="s7"><${Value} key=${key} name=${key} place=${place} /></div>`}
  </div>`;
}
