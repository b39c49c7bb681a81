// Bytes: the rax as a tree, and a block as coloured bytes that explain themselves.
import { html, useState, useEffect, useMemo, useRef, useCallback, useGet, go, number, size } from "./base.js";
import { Card, ChooseStream, KeyPicker, Problem, Empty } from "./parts.js";

// ---- rax ----

function RaxNode({ node, depth, open, under }) {
  const [shown, setShown] = useState(depth < 6), [most, setMost] = useState(24);
  // The bytes below a compressed node are those that it shows.
  const edge = node.edge && under !== "compressed" ? `${node.edge.match(/../g).join(" ")}` : "";
  return html`<li><span class="edge" title="the bytes on the edge to this node">${edge}</span>
    <span class="rnode ${node.kind} ${node.key ? "key" : ""}" title=${`${node.kind}, ${node.bytes} bytes in Redis`}>
      ${node.kind === "compressed" ? html`"${node.chars}"` : node.kind === "plain" ? html`[${node.chars}]` : "[ ]"}
      ${node.key ? html`<button type="button" class="link" onClick=${() => open(node.key)}>${node.key}</button>` : null}</span>
    ${node.children.length && depth >= 6 ? html` <button type="button" class="link" aria-expanded=${shown} onClick=${() => setShown(!shown)}>${shown ? "less" : `${node.children.length} below`}</button>` : null}
    ${shown && node.children.length ? html`<ul>${node.children.slice(0, most).map((one, n) => html`<${RaxNode} key=${n} node=${one} depth=${depth + 1} open=${open} under=${node.kind} />`)}
      ${node.children.length > most ? html`<li><button type="button" class="link" onClick=${() => setMost(most + 100)}>${node.children.length - most} more</button></li>` : null}</ul>` : null}</li>`;
}

// ---- bytes ----

const LEGEND = { stream_node: [["count", "counts"], ["flags", "flags"], ["ms-delta", "ID deltas"], ["field", "field"], ["value", "value"], ["lp-count", "lp-count"], ["header", "header, backlen, end"]],
  listpack: [["field", "field or member"], ["value", "value, score or element"], ["header", "header, backlen, end"]], intset: [["count", "header"], ["data", "member"]], rdb: [["data", "bytes"]] };
const pairs = (hex) => hex.match(/../g) || [];
const leaf = (span) => html`<span class="by ${span.kind}">${pairs(span.hex).join(" ")}${span.end - span.start > span.hex.length / 2 ? html`<span class="muted"> +${span.end - span.start - span.hex.length / 2}</span>` : null}</span>`;

// An element is what the pointer and the keys stop at; its parts are encoding, data, backlen.
const touched = (span, ranges) => (ranges || []).some(([start, end]) => span.start < end && span.end > start);
const hexOf = (span) => (span.parts ? span.parts.map(hexOf).join("") : span.hex);
// `turn` is the element's number among those that changed: they are written one after the other. `was`: the bytes before.
const Element = ({ span, path, turn, was }) => html`${was !== undefined && was !== hexOf(span) ? html`<del class="was">${pairs(was).join(" ")}</del>` : null}<span class="el k-${span.kind} ${turn >= 0 ? "changed" : ""}" style=${turn >= 0 ? { "--turn": turn } : undefined} tabindex="-1" data-path=${path} role="img"
  aria-label=${`${span.name}${span.value ? ": " + span.value.slice(0, 80) : ""}`}>${span.parts ? span.parts.map(leaf) : leaf(span)}</span>`;
// The bytes of each span by its place.
const bytesBefore = (spans, found = new Map()) => { for (const one of spans) { found.set(`${one.start}-${one.end}`, hexOf(one)); if (one.parts) bytesBefore(one.parts, found); } return found; };

function Explain({ span, words }) {
  if (!span) return html`<p class="muted">Point at a byte, or move with the arrow keys: this explains it.</p>`;
  const [first, ...rest] = span.parts || [];
  return html`<div class="stack" style=${{ gap: "4px" }}>
    <p><b>${span.name}</b>${span.value ? html` = <code>${span.value.slice(0, 300)}</code>` : null} <span class="muted small">bytes ${span.start}–${span.end - 1}</span></p>
    ${span.note !== undefined ? html`<p>${words[span.note]}</p>` : null}
    ${span.parts ? html`<p class="small muted">${span.parts.map((one, n) => html`<span key=${n}><code>${pairs(one.hex || "").slice(0, 8).join(" ")}${(one.hex || "").length > 16 ? "…" : ""}</code> ${one.kind === "encoding" ? `encoding ${one.name}` : one.name}${one.value ? ` = ${one.value.slice(0, 60)}` : ""}${one.note !== undefined ? `: ${words[one.note]}` : ""}${n < span.parts.length - 1 ? " · " : ""}</span>`)}</p>` : null}</div>`;
}

function Block({ block, before }) {
  const was = useMemo(() => (before && before.bytes ? bytesBefore(before.spans) : new Map()), [before]);
  let turn = 0;
  const [current, setCurrent] = useState(null);
  const box = useRef(null);
  const found = useRef(null);
  found.current = block;
  const at = useCallback((path) => path.split(".").reduce((one, n) => (one.parts || one.spans)[Number(n)], found.current), []);
  const mark = (element) => {
    if (!element || !box.current) return;
    box.current.querySelectorAll(".el.on").forEach((one) => one.classList.remove("on"));
    element.classList.add("on");
    setCurrent(at(element.dataset.path));
  };
  useEffect(() => { setCurrent(null); const one = box.current && box.current.querySelector(".el"); if (one) one.tabIndex = 0; if (box.current) box.current.scrollTop = 0; }, [block]);
  const over = (event) => mark(event.target.closest(".el"));
  const keys = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 8, ArrowUp: -8 }[event.key];
    if (!step) return;
    const all = [...box.current.querySelectorAll(".el")], n = all.indexOf(document.activeElement);
    const next = all[Math.max(0, Math.min(all.length - 1, n + step))];
    if (next) { event.preventDefault(); all.forEach((one) => { one.tabIndex = -1; }); next.tabIndex = 0; next.focus(); }
  };
  const units = useMemo(() => {
    // Elements outside of entries (a listpack without a meaning by entry) are drawn together.
    const found = [];
    block.spans.forEach((span, n) => {
      const grouped = span.parts && ["master", "entry", "tombstone", "header"].includes(span.kind);
      if (grouped) found.push({ name: span.kind === "header" ? "listpack header" : span.name, kind: span.kind, note: span.note, cells: span.parts.map((one, m) => [one, `${n}.${m}`]) });
      else { const last = found[found.length - 1]; if (last && last.loose) last.cells.push([span, `${n}`]); else found.push({ name: span.kind === "end" ? "end" : "elements", kind: "", loose: true, cells: [[span, `${n}`]] }); }
    });
    return found;
  }, [block]);
  return html`<div>
    <div class="legend" aria-hidden="true">${(LEGEND[block.page] || LEGEND.rdb).map(([kind, text]) => html`<span key=${kind}><i class="k-${kind}"></i>${text}</span>`)}<span><b>bold</b> encoding</span><span>grey: backlen</span></div>
    ${block.facts.problem ? html`<${Problem} text=${block.facts.problem} />` : null}
    <div class="bytes" ref=${box} onMouseOver=${over} onFocusIn=${over} onKeyDown=${keys} role="group" aria-label="Bytes of the block; the arrow keys move between elements">
      ${units.map((unit, n) => html`<div class="unit ${unit.kind}" key=${n}><div class="name">${unit.name}</div><div class="cells">${unit.cells.map(([span, path]) => html`<${Element} key=${path} span=${span} path=${path} turn=${touched(span, block.changed) ? turn++ : -1} was=${touched(span, block.changed) ? was.get(`${span.start}-${span.end}`) : undefined} />`)}</div></div>`)}
    </div>
    <div class="explain" aria-live="polite"><${Explain} span=${current} words=${block.words} /></div></div>`;
}

// ---- how an entry was added ----

function Steps({ name, entries }) {
  const [id, setId] = useState(entries[entries.length - 1].id), [at, setAt] = useState(0), [plays, setPlays] = useState(false);
  const { data, error } = useGet("append", { key: name, id }, [name, id], `${name} ${id}`);
  const step = data && data.steps[at];
  const go_to = (n) => { setPlays(false); setAt(Math.max(0, Math.min(3, n))); };
  // Each step stays as long as its words take to read.
  useEffect(() => {
    if (!plays || !data) return;
    const timer = setTimeout(() => (at < 3 ? setAt(at + 1) : setPlays(false)), at < 3 ? 2600 : 0);
    return () => clearTimeout(timer);
  }, [plays, at, data]);
  const play = () => { if (!plays && at === 3) setAt(0); setPlays(!plays); };
  return html`<${Card} title="How an entry was added" id="h-steps">
    <div class="stack">
      <div class="row"><label for="step-entry">Entry</label>
        <select id="step-entry" value=${id} onChange=${(e) => { setId(e.target.value); go_to(0); }}>${entries.map((one) => html`<option key=${one.id} value=${one.id}>${one.id}</option>`)}</select>
        <button type="button" class="primary" onClick=${play}>${plays ? "Pause" : "Play"}</button>
        <button type="button" onClick=${() => go_to(at - 1)} disabled=${at === 0}>Back</button>
        <button type="button" onClick=${() => go_to(at + 1)} disabled=${at === 3}>Next step</button>
        ${data ? html`<span role="group" aria-label="Steps" class="row">${data.steps.map((one, n) => html`<button type="button" key=${n} aria-pressed=${n === at} onClick=${() => go_to(n)}>${one.name}</button>`)}</span>` : null}</div>
      <${Problem} text=${error} />
      ${step ? html`<p aria-live="polite"><b>${step.name}.</b> ${step.note} <span class="muted small">${step.bytes ? `${step.bytes} bytes` : "There is no node yet."}${step.changed.length ? "; framed: what this step wrote" : ""}</span></p>
        ${step.bytes ? html`<div class=${at === 1 && !step.changed.length ? "found" : ""}><${Block} key=${`${id} ${at}`} block=${step} before=${data.steps[at - 1]} /></div>` : null}` : null}</div><//>`;
}

// ---- structures in memory ----

function Shape({ shape }) {
  if (!shape) return null;
  return html`
    ${shape.tables ? html`<${Card} title="The dict's tables in memory" id="h-dict" className=${shape.levels ? "s6" : ""}>
      <div class="scroll" tabindex="0" role="region" aria-label="Tables of the dict"><table><thead><tr><th scope="col">Table</th><th class="right" scope="col">Slots</th><th class="right" scope="col">Entries</th><th class="right" scope="col">Longest chain</th><th scope="col">Chains by length</th></tr></thead>
        <tbody>${shape.tables.map((one, n) => html`<tr key=${n}><td>${n ? "1, the rehashing target" : "0"}</td><td class="right">${number(one.slots)}</td><td class="right">${number(one.used)}</td><td class="right">${one.longest}</td><td class="mono">${(one.lengths || []).map((count, length) => (count ? `${length}: ${number(count)}` : "")).filter(Boolean).join(", ")}</td></tr>`)}</tbody></table></div>
      <p class="muted small">${shape.rehashidx >= 0 ? html`It rehashes: the slots of table 0 below ${number(shape.rehashidx)} have moved to table 1. <span class="meter" style=${{ display: "block", margin: "6px 0" }}><i style=${{ width: `${(100 * shape.rehashidx) / Math.max(1, shape.tables[0].slots)}%` }}></i></span>` : "It does not rehash: there is one table."}</p><//>` : null}
    ${shape.levels ? html`<${Card} title="The skiplist's levels in memory" id="h-skip" className="s6">
      <div class="scroll levels" tabindex="0" role="region" aria-label="Levels of the skiplist"><table><caption class="sr">Levels</caption><tbody>${shape.levels.map((level, n) => html`<tr key=${n}><th scope="row">level ${shape.levels.length - n}</th><td class="right">${number(level.nodes)} ${level.nodes === 1 ? "node" : "nodes"}</td>${level.firsts.slice(0, 24).map((one, m) => html`<td class="node" key=${m} title=${`at rank ${one}`}>${one}</td>`)}${level.nodes > level.firsts.length || level.firsts.length > 24 ? html`<td class="muted">…</td>` : null}</tr>`)}</tbody></table></div>
      <p class="muted small">A cell is a node, with the rank of its first member. rillet keeps up to ${shape.node_members} members in a node (docs/design/0024); Redis has a node for each member.</p><//>` : null}`;
}

export default function BytesView({ place, values, overview }) {
  const key = values.key;
  const { data, error, busy } = useGet(key !== undefined ? "bytes" : "", { key, at: values.at, block: values.block }, [key, values.at, values.block], key);
  // An ID selects the node that holds it.
  useEffect(() => {
    if (!data || !values.at || values.block || !data.blocks.length || !data.blocks[0].id) return;
    const [ms, seq] = values.at.split("-").map(BigInt);
    let found = 0;
    data.blocks.forEach((one, n) => { const [a, b] = one.id.split("-").map(BigInt); if (a < ms || (a === ms && b <= (seq || 0n))) found = n; });
    if (found !== data.selected.index) go("bytes", { key, at: values.at, block: String(found) }, true);
  }, [data]);
  const open = (block) => go("bytes", { key, at: values.at, block: String(block) });
  const payload = data && data.payload;
  return html`<div class="grid">
    <div class="row"><${KeyPicker} view="bytes" value=${key} overview=${overview} label="Key" />
      ${data ? html`<span class="muted small">${data.type}${data.encoding ? `, ${data.encoding}` : ""} · ${size(data.memory)} · ${data.total_blocks === 1 ? "1 block" : `${number(data.total_blocks)} blocks`} · read with <code>${data.source}</code></span>` : null}</div>
    <${Problem} text=${error} />
    ${key === undefined ? html`<${ChooseStream} view="bytes" overview=${overview} />` : null}
    ${data ? html`
    ${data.rax ? html`<${Card} title="Rax" id="h-rax" className="s6" tools=${html`<span class="badge ${data.whole ? "" : "warn"}">${data.rax.label}</span>`}>
      <p class="muted small">${number(data.rax.keys)} keys, ${number(data.rax.nodes)} nodes. <span class="rnode compressed">compressed</span> <span class="rnode">plain</span> <span class="rnode key">key</span></p>
      <div class="rax" tabindex="0" role="region" aria-label="The rax as a tree"><ul><${RaxNode} node=${data.rax.root} depth=${0} open=${(id) => open(data.blocks.findIndex((one) => one.id === id))} /></ul></div>
      <details class="small muted"><summary>Words of the format page</summary>${Object.values(data.rax.words).map((text, n) => html`<p key=${n}>${text}</p>`)}</details><//>` : null}
    <${Card} title=${data.type === "stream" ? "Nodes" : "Value"} id="h-blocks" className=${data.rax ? "s6" : ""} tools=${data.next ? html`<button type="button" onClick=${() => go("bytes", { key, at: data.next })}>Next nodes</button>` : null}>
      <div class="stack">
        ${payload ? html`<p class="small">DUMP payload: RDB type <code>${payload.rdb_type}</code> (${payload.form}), RDB version ${payload.rdb_version}, ${size(payload.bytes)}, checksum ${payload.checksum ? html`<span class="good">correct</span>` : html`<span class="bad">wrong</span>`}${payload.elements !== null ? `, ${number(payload.elements)} elements one after the other` : ""}${Object.entries(payload.facts).map(([name, value]) => ` · ${name} ${value}`).join("")}</p>` : null}
        ${data.blocks.length ? html`<div class="blocks ${data.rax ? "tall" : ""}" role="group" aria-label="Blocks">${data.blocks.map((one, n) => html`<button type="button" key=${n} aria-pressed=${data.selected.index === n} onClick=${() => open(n)} title=${`${one.format}, ${one.bytes} bytes${one.packed !== null ? `, LZF ${one.packed}` : ""}`}>${one.id || `${one.format} ${n}`} · ${size(one.bytes)}${one.packed !== null ? " LZF" : ""}</button>`)}</div>`
          : html`<${Empty}>${place.rillet ? "This encoding has no block of bytes: DUMP writes its elements one after the other." : "This encoding has no block of bytes in a DUMP payload. Its structures in memory are shown for rillet only."}<//>`}
        ${data.selected && data.selected.facts.live !== undefined ? html`<p class="small muted">Node ${data.selected.facts.id}: ${size(data.selected.bytes)}, ${data.selected.facts.live} entries, ${data.selected.facts.tombstones} tombstones, ${data.selected.facts.samefields} with SAMEFIELDS.</p>` : null}</div><//>
    <${Shape} shape=${data.shape} />
    ${data.selected ? html`<${Card} title=${`Bytes of ${data.selected.facts.id ? `node ${data.selected.facts.id}` : `${data.selected.format} ${data.selected.index}`}`} id="h-bytes"><${Block} block=${data.selected} /><//>` : null}
    ${data.selected && data.selected.facts.entries && data.selected.facts.entries.length ? html`<${Steps} key=${data.selected.facts.id} name=${key} entries=${data.selected.facts.entries} />` : null}` : busy ? html`<p class="loading" role="status">Reading…</p>` : null}
  </div>`;
}
