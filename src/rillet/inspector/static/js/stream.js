// Stream: timeline with holes and trims, entries as a table that is fetched as it scrolls, live tail, filters, export.
import { html, useState, useEffect, useRef, useMemo, useCallback, useGet, useFeed, get, go, link, query, number, counted, perTime, size, duration, moment, timeTicks, toPosition, msOf, isTime, named } from "./base.js";
import { Card, Chart, ChooseStream, EntryDetail, KeyPicker, Name, Problem, Empty } from "./parts.js";
import { Action } from "./actions.js";
import { SavedFilters } from "./saved.js";

const PAGE = 100, KEEP = 400, ROW = 32;
const COLUMNS = 12;

function columnsOf(rows) {
  const counts = new Map();
  for (const row of rows) for (const [name] of row.fields || []) counts.set(name, (counts.get(name) || 0) + 1);
  return [...counts.keys()].slice(0, COLUMNS);
}

// ---- timeline ----

function Timeline({ stream, theme, range, setRange, jump, live }) {
  const { data, error, again } = useGet("timeline", { key: stream, buckets: 160, start: range && range[0], end: range && range[1] }, [stream, range], stream);
  const [readout, setReadout] = useState("");
  useEffect(() => {
    if (!live) return;
    const timer = setInterval(() => { if (!document.hidden) again(); }, 4000);
    return () => clearInterval(timer);
  }, [live, stream]);
  const shown = useMemo(() => {
    if (!data) return null;
    const edges = data.edges;
    return [edges.slice(0, -1).map((one) => one / 1000), data.counts.map((count, n) => (count * 1000) / Math.max(1, edges[n + 1] - edges[n]))];
  }, [data]);
  const current = useRef(null), dragged = useRef(false);
  current.current = { data, jump, setRange };
  const options = useCallback(({ axis, color }) => ({
    scales: { x: { time: current.current.data !== null && current.current.data.edges.every(isTime), range: (u, low, high) => { const { data } = current.current; return data ? [data.edges[0] / 1000, Math.max(data.edges[data.edges.length - 1], data.edges[0] + 1) / 1000] : [low, high]; } }, y: { range: (u, low, high) => [0, Math.max(high || 0, 1e-9) * 1.1] } },
    axes: [{ ...axis, space: 90, values: timeTicks }, { ...axis, size: 56, values: (u, all) => all.map(perTime) }],
    series: [{}, { stroke: color("--c1"), fill: color("--accent-soft"), width: 1.4, points: { show: false }, paths: stepped }],
    cursor: { y: false, drag: { x: true, y: false, setScale: false } },
    hooks: {
      drawClear: [(u) => {
        const { data } = current.current;
        if (!data) return;
        u.ctx.save();
        u.ctx.fillStyle = color("--warn-soft");
        for (const [start, end] of data.holes) {
          const left = u.valToPos(start / 1000, "x", true), right = u.valToPos(end / 1000, "x", true);
          u.ctx.fillRect(left, u.bbox.top, Math.max(1, right - left), u.bbox.height);
        }
        if (data.removed && data.first_id && msOf(data.first_id) >= data.edges[0]) {
          u.ctx.fillStyle = color("--bad");
          u.ctx.fillRect(u.valToPos(msOf(data.first_id) / 1000, "x", true), u.bbox.top, 2 * devicePixelRatio, u.bbox.height);
        }
        u.ctx.restore();
      }],
      setCursor: [(u) => {
        const { data } = current.current, n = u.cursor.idx;
        if (!data || n === null || n === undefined || data.counts[n] === undefined) { setReadout(""); return; }
        const start = data.edges[n];
        setReadout(`${isTime(start) ? `${moment(start)} UTC` : start} · ${data.exact ? "" : "≈ "}${counted(data.counts[n], "entry", "entries")} · ${perTime(u.data[1][n])}`);
      }],
      setSelect: [(u) => {
        const { setRange } = current.current;
        dragged.current = u.select.width > 8;
        if (dragged.current) setRange([Math.round(u.posToVal(u.select.left, "x") * 1000), Math.round(u.posToVal(u.select.left + u.select.width, "x") * 1000)]);
        u.setSelect({ width: 0, height: 0, left: 0, top: 0 }, false);
      }],
      ready: [(u) => u.over.addEventListener("click", () => { if (!dragged.current && u.cursor.left >= 0) current.current.jump(String(Math.round(u.posToVal(u.cursor.left, "x") * 1000))); })],
    },
  }), [stream, data === null]);
  if (error) return html`<${Problem} text=${error} />`;
  if (!data || !shown) return html`<div class="chart" style=${{ height: "150px" }}></div>`;
  if (!data.length) return html`<${Empty}>The stream has no entries.<//>`;
  return html`<div>
    <${Chart} data=${shown} options=${options} height=${150} theme=${theme}
      label=${`Entries per second over time: ${counted(data.length, "entry", "entries")}, ${counted(data.holes.length, "hole", "holes")}, ${data.removed || 0} removed`} />
    <p class="readout" aria-live="off">${readout || html`${data.exact ? "Exact counts" : "Estimates from samples"}${data.holes.length ? html`, <span class="warn">${counted(data.holes.length, "hole", "holes")}</span>` : ", no holes"}${data.removed ? html`, <span class="bad">${counted(data.removed, "entry removed", "entries removed")}</span>${data.max_deleted_id ? ` up to ${data.max_deleted_id}` : ""}` : ""}. Click to jump, drag to zoom.`}</p>
  </div>`;
}

// Steps: a bucket's rate holds from its start to its end.
function stepped(u, series, from, to) {
  const xs = u.data[0], ys = u.data[series], path = new Path2D(), fill = new Path2D();
  const x = (n) => u.valToPos(xs[n], "x", true), y = (v) => u.valToPos(v, "y", true), zero = y(0);
  const step = xs.length > 1 ? xs[1] - xs[0] : 1;
  for (let n = from; n <= to; n++) {
    const left = x(n), right = n < xs.length - 1 ? x(n + 1) : u.valToPos(xs[n] + step, "x", true), top = y(ys[n] ?? 0);
    if (n === from) { path.moveTo(left, top); fill.moveTo(left, zero); }
    path.lineTo(left, top); path.lineTo(right, top);
    fill.lineTo(left, top); fill.lineTo(right, top);
    if (n === to) fill.lineTo(right, zero);
  }
  return { stroke: path, fill, clip: null };
}

// ---- entries ----

function useWindow(stream, where, at) {
  const [state, set] = useState({ rows: [], error: "", first: null, last: null, examined: 0 });
  const box = useRef(null), busy = useRef(false), now = useRef(null);
  const [seen, setSeen] = useState([0, 0]);  // the numbers of the first and the last row in sight
  now.current = state;
  const load = useCallback(async (down) => {
    if (busy.current) return;
    const from = down ? now.current.last : now.current.first;
    if (from === null) return;
    busy.current = true;
    try {
      const page = await get("entries", down
        ? { key: stream, start: from, count: PAGE, where }
        : { key: stream, end: from, count: PAGE, reverse: 1, where });
      if (now.current.stream !== `${stream}\n${where.join("\n")}\n${at}`) return;
      const old = now.current;
      let { rows, first, last } = old;
      if (down) {
        rows = [...rows, ...page.entries];
        last = page.next;
        const extra = rows.length - KEEP;
        if (extra > 0) { rows = rows.slice(extra); first = `(${rows[0].id}`; shift(box.current, -extra); }
      } else {
        const before = page.entries.reverse();
        rows = [...before, ...rows];
        first = page.next;
        if (rows.length > KEEP) { rows = rows.slice(0, KEEP); last = `(${rows[rows.length - 1].id}`; }
        shift(box.current, before.length);
      }
      set({ ...old, rows, first, last, examined: page.examined });
    } catch (error) { set({ ...now.current, error: error.message }); } finally { busy.current = false; }
  }, [stream, where.join("\n"), at]);
  useEffect(() => {
    let gone = false;
    const name = `${stream}\n${where.join("\n")}\n${at}`;
    const end = at === "end";
    set((old) => ({ ...old, stream: name }));
    get("entries", end ? { key: stream, count: PAGE, reverse: 1, where } : { key: stream, start: at || "-", count: PAGE, where }).then((page) => {
      if (gone) return;
      const rows = end ? page.entries.reverse() : page.entries;
      set({ stream: name, rows, error: "", examined: page.examined,
            first: end ? page.next : rows.length ? (at ? `(${rows[0].id}` : null) : null, last: end ? null : page.next });
      requestAnimationFrame(() => { if (box.current) box.current.scrollTop = end ? box.current.scrollHeight : 0; });
    }, (error) => gone || set({ stream: name, rows: [], error: error.message, first: null, last: null }));
    return () => { gone = true; };
  }, [stream, where.join("\n"), at]);
  const scrolled = useCallback(() => {
    const one = box.current;
    if (!one) return;
    look(one, setSeen);
    if (one.scrollTop + one.clientHeight > one.scrollHeight - 20 * ROW) load(true);
    else if (one.scrollTop < 10 * ROW) load(false);
  }, [load]);
  useEffect(() => { if (box.current) look(box.current, setSeen); }, [state.rows]);
  return { ...state, box, scrolled, load, seen };
}
const heightOf = (box) => { const row = box.querySelector("tbody tr"); return row ? row.getBoundingClientRect().height : ROW; };
function look(box, set) {
  const height = heightOf(box), first = Math.round(box.scrollTop / height);
  set((old) => { const last = first + Math.floor((box.clientHeight - height) / height) - 1; return old[0] === first && old[1] === last ? old : [first, last]; });
}
// Rows are added or dropped above: what the reader sees must not move.
function shift(box, rows) { if (box) { const to = box.scrollTop + rows * heightOf(box); requestAnimationFrame(() => { box.scrollTop = Math.max(0, to); }); } }

function Rows({ rows, columns, selected, select, fresh }) {
  return html`<tbody>${rows.map((row) => {
    const values = new Map((row.fields || []).map((one) => [one[0], one]));
    const rest = (row.fields || []).filter(([name]) => !columns.includes(name)).length + (row.more || 0);
    return html`<tr key=${row.id} class="${row.id === selected ? "on" : ""} ${fresh && fresh.has(row.id) ? "fresh" : ""}" onClick=${() => select(row.id)}>
      <td><button type="button" class="link" data-id=${row.id} onClick=${(e) => { e.stopPropagation(); select(row.id); }}>${row.id}</button></td>
      <td class="muted">${moment(row.ms)}</td>
      ${columns.map((name) => { const one = values.get(name); return html`<td key=${name} title=${one ? one[1] : ""}>${one ? one[1].slice(0, 120) : html`<span class="muted">·</span>`}</td>`; })}
      ${rest ? html`<td class="muted">+${rest}</td>` : html`<td></td>`}</tr>`;
  })}</tbody>`;
}

function Head({ columns }) {
  return html`<thead><tr><th scope="col">ID</th><th scope="col">Time (UTC)</th>${columns.map((name) => html`<th scope="col" key=${name}><${Name} text=${name} /></th>`)}<th scope="col"><span class="sr">more fields</span></th></tr></thead>`;
}

function moveFocus(event, box) {
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  const all = [...box.querySelectorAll("button.link")], n = all.indexOf(document.activeElement);
  if (n < 0) return;
  const next = all[n + (event.key === "ArrowDown" ? 1 : -1)];
  if (next) { event.preventDefault(); next.focus({ preventScroll: true }); next.scrollIntoView({ block: "nearest" }); }
}

function Browse({ stream, where, at, selected, select, info, place }) {
  const found = useWindow(stream, where, at);
  const columns = useMemo(() => columnsOf(found.rows), [found.rows]);
  const [rank, setRank] = useState(null);
  const first = found.rows[Math.min(found.seen[0], found.rows.length - 1)], last = found.rows[Math.min(found.seen[1], found.rows.length - 1)];
  const top = first && first.id;
  useEffect(() => {
    if (!top || !place.rillet) return;
    const timer = setTimeout(() => get("rank", { key: stream, id: top }).then((one) => setRank(one.rank), () => {}), 250);
    return () => clearTimeout(timer);
  }, [top, stream]);
  const keys = (event) => {
    if (event.key === "Home" || event.key === "End") { event.preventDefault(); go("stream", { key: stream, where: where.join("\n"), at: event.key === "End" ? "end" : "" }); }
    moveFocus(event, found.box.current);
  };
  return html`<div>
    <${Problem} text=${found.error} />
    ${found.rows.some((row) => row.letter) ? html`<p class="note small" style=${{ marginBottom: "8px" }}>These are dead letters. <a href=${link("letters", { key: stream })}>By reason, to requeue or drop them</a></p>` : null}
    <div class="entries" ref=${found.box} onScroll=${found.scrolled} onKeyDown=${keys} tabindex="0" role="region" aria-label="Entries">
      <table><caption class="sr">Entries of ${named(stream)}</caption><${Head} columns=${columns} /><${Rows} rows=${found.rows} columns=${columns} selected=${selected} select=${select} /></table>
      ${!found.rows.length && !found.error ? html`<${Empty}>${found.last ? html`No entry among ${number(found.examined)} matches. <button type="button" onClick=${() => found.load(true)}>Look further</button>` : "No entries here."}<//>` : null}
      ${found.rows.length && found.last && where.length ? html`<p class="row"><button type="button" onClick=${() => found.load(true)}>Look further</button></p>` : null}
    </div>
    <p class="readout">${first && last ? html`${first.id} to ${last.id}${rank !== null && !where.length ? html` · entry ${number(rank)} of ${number(info && info.length)}` : ""}` : ""}</p></div>`;
}

// ---- live ----

const SHOWN = 300;
function Live({ stream, where, selected, select }) {
  const [rows, setRows] = useState([]), [paused, setPaused] = useState(false), [held, setHeld] = useState([]);
  const [skipped, setSkipped] = useState(false), [total, setTotal] = useState(0), [problem, setProblem] = useState("");
  const [fresh, setFresh] = useState(new Set());
  const state = useRef(paused);
  state.current = paused;
  useEffect(() => { setRows([]); setHeld([]); setTotal(0); setSkipped(false); }, [stream, where.join("\n")]);
  useFeed("problem", (one) => setProblem(one.error), []);
  useFeed("entries", (one) => {
    if (one.stream !== stream) return;
    setProblem("");
    setTotal((n) => n + one.entries.length);
    setSkipped(one.skipped);
    const newest = [...one.entries].reverse();
    if (state.current) { setHeld((old) => [...newest, ...old].slice(0, SHOWN)); return; }
    setFresh(new Set(newest.map((row) => row.id)));
    setRows((old) => [...newest, ...old].slice(0, SHOWN));
  }, [stream]);
  const toggle = () => { if (paused) { setRows((old) => [...held, ...old].slice(0, SHOWN)); setHeld([]); } setPaused(!paused); };
  useEffect(() => {
    const pressed = (event) => { if (event.key === " " && !/INPUT|SELECT|TEXTAREA|BUTTON|A|SUMMARY/.test(event.target.tagName)) { event.preventDefault(); toggle(); } };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  });
  const columns = useMemo(() => columnsOf(rows), [rows]);
  const box = useRef(null);
  return html`<div>
    <div class="row" style=${{ padding: "0 0 8px" }}>
      <button type="button" aria-pressed=${paused} onClick=${toggle}>${paused ? `Resume${held.length ? ` (${held.length}${held.length === SHOWN ? "+" : ""} held)` : ""}` : "Pause"}</button>
      <span class="muted small" role="status">${counted(total, "new entry", "new entries")} since the tail began${skipped ? html`, <span class="warn">the producer is faster than this page: a sample is shown</span>` : ""}</span></div>
    <${Problem} text=${problem} />
    <div class="entries" ref=${box} onKeyDown=${(e) => moveFocus(e, box.current)} tabindex="0" role="region" aria-label="New entries, newest first">
      <table><caption class="sr">New entries of ${named(stream)}</caption><${Head} columns=${columns} /><${Rows} rows=${rows} columns=${columns} selected=${selected} select=${select} fresh=${fresh} /></table>
      ${rows.length ? null : html`<${Empty}>Waiting for new entries…<//>`}</div></div>`;
}

// ---- the view ----

// Where the entries of rillet's streams are, and what the retention keeps.
function Places({ places }) {
  const kept = places && places.retention;
  if (!places || (!places.ranges && !kept)) return null;
  const limits = kept ? [kept.age !== null && `for ${duration(kept.age * 1000)}`, kept.entries !== null && `up to ${counted(kept.entries, "entry", "entries")}`, kept.bytes !== null && `up to ${size(kept.bytes)}`].filter(Boolean) : [];
  return html`<div class="note small">
    ${places.ranges ? html`<p>In memory ${counted(places.entries_in_memory, "entry", "entries")} (${size(places.bytes_in_memory)}), in segments on disk ${number(places.entries_in_segments)} (${size(places.bytes_in_segments)}).</p>` : null}
    ${kept ? html`<p>Kept ${limits.join(", ")}${kept.groups === "ignore" ? "" : ", and what a group has not acknowledged"}. ${kept.drops_entries ? `Next, ${counted(kept.drops_entries, "entry", "entries")} (${size(kept.drops_bytes)}) before ${kept.keeps_from} ${kept.drops_entries === 1 ? "goes" : "go"}. ` : ""}${kept.due ? `The first entry is too old from ${moment(kept.due * 1000)} on. ` : ""}${kept.note}</p>` : null}
    ${kept && kept.held.length ? html`<ul>${kept.held.map((one) => html`<li key=${one.group}><b><${Name} text=${one.group} /></b> holds back ${counted(one.entries, "entry", "entries")} (${size(one.bytes)}) from ${one.first_id} on</li>`)}</ul>` : null}</div>`;
}

const FILTERS = 'A comma separates filters; a value with a comma is in quotation marks: name="Doe, Jane"';

export default function StreamView({ place, values, overview, theme }) {
  const stream = values.key;
  const where = useMemo(() => (values.where ? values.where.split("\n").filter(Boolean) : []), [values.where]);
  const live = values.live === "1", at = values.at || "";
  const [range, setRange] = useState(null), [selected, select] = useState(null), [word, setWord] = useState(""), [to, setTo] = useState(""), [bad, setBad] = useState(""), [wrong, setWrong] = useState("");
  const [action, setAction] = useState(null), [done, setDone] = useState(""), [turn, setTurn] = useState(0);
  useEffect(() => { setRange(null); select(null); }, [stream]);
  const { data: facts, error } = useGet(stream !== undefined ? "stream" : "", { key: stream }, [stream], stream);
  const info = (overview && overview.streams.find((one) => one.name === stream && one.age !== null)) || facts;
  const set = (change) => go("stream", { key: stream, where: where.join("\n"), live: live ? "1" : "", at, ...change });
  const jump = useCallback((position) => go("stream", { key: stream, where: where.join("\n"), at: position }), [stream, where]);
  const submit = (event) => {
    event.preventDefault();
    const position = toPosition(to);
    if (position === null) { setBad("That is neither an ID nor a time."); return; }
    setBad(""); jump(position);
  };
  const addFilter = async (event) => {
    event.preventDefault();
    const text = word.trim();
    if (!text) return;
    try { await get("entries", { key: stream, start: "+", end: "-", where: [text] }); } catch (one) { setWrong(one.message); return; }  // an empty range: is it a filter?
    setWrong(""); setWord(""); set({ where: [...where, text].join("\n") });
  };
  const file = (format) => `/api/export?${query({ key: stream, format, start: range && range[0], end: range && range[1], where })}`;
  const finished = (text) => { setAction(null); setDone(text); setTurn((n) => n + 1); };
  const copied = (entry) => ({ fields: entry.fields.map(([name, value]) => `${name}=${value}`).join("\n") });
  const ofEntry = (entry) => html`<button type="button" onClick=${() => setAction(["add", {}, copied(entry)])}>Add a copy</button><button type="button" onClick=${() => setAction(["trim", {}, { id: entry.id }])}>Trim</button><button type="button" onClick=${() => setAction(["delete", { ids: [entry.id] }])}>Delete</button>`;
  return html`<div class="grid">
    <div class="row"><${KeyPicker} view="stream" value=${stream} overview=${overview} />
      ${info ? html`<span class="muted small">${counted(info.length, "entry", "entries")} · ${size(info.memory && info.memory.total)} · ${counted(info.nodes, "node", "nodes")} · <a href=${link("groups", { key: stream })}>${counted(info.groups.length, "group", "groups")}</a> · <a href=${link("bytes", { key: stream })}>bytes</a>${info.rate !== null && info.rate !== undefined ? ` · ${perTime(info.rate)}` : ""}</span>` : null}</div>
    ${info ? html`<${Places} places=${info.places} />` : null}
    <${Problem} text=${error} />
    ${stream === undefined ? html`<${ChooseStream} view="stream" overview=${overview} />` : null}
    ${stream !== undefined && !error ? html`
    <${Card} title="Throughput" id="h-time" tools=${html`${range ? html`<button type="button" onClick=${() => setRange(null)}>Whole stream</button>` : null}
        <form class="row" onSubmit=${submit}><label for="jump">Jump to</label><input id="jump" size="22" placeholder="ID or 2026-11-18 10:30" value=${to} onInput=${(e) => setTo(e.target.value)} aria-describedby="jump-bad" />
        <button type="submit">Go</button><button type="button" onClick=${() => jump("")}>First</button><button type="button" onClick=${() => jump("end")}>Last</button></form><span id="jump-bad" class="bad small" role="status">${bad}</span>`}>
      <${Timeline} stream=${stream} theme=${theme} range=${range} setRange=${setRange} jump=${jump} live=${live} />
    <//>
    <div class="split ${selected ? "open" : ""}">
      <${Card} title="Entries" id="h-entries" tools=${html`
        <button type="button" aria-pressed=${live} onClick=${() => set({ live: live ? "" : "1", at: "" })}>${live ? "Live" : "Live tail"}</button>
        <button type="button" onClick=${() => setAction(["add", {}, {}])}>Add an entry</button><span class="muted small" role="status">${done}</span>
        <form class="row" onSubmit=${addFilter}><label for="filter">Filter</label><input id="filter" size="20" placeholder="carrier=UA, delay>30" title=${FILTERS} value=${word} onInput=${(e) => setWord(e.target.value)} aria-describedby="filter-bad" /><button type="submit">Add</button></form><${SavedFilters} stream=${stream} where=${where} onUse=${(found) => set({ where: found.join("\n") })} /><span id="filter-bad" class="bad small" role="status">${wrong}</span>
        <span class="row"><span class="muted small">Export${range ? " range" : ""}</span><a class="button" href=${file("csv")} download>CSV</a><a class="button" href=${file("jsonl")} download>JSON lines</a><a class="button" href=${file("parquet")} download>Parquet</a></span>`}>
        ${where.length ? html`<p class="row" style=${{ marginBottom: "8px" }}>${where.map((one, n) => html`<button type="button" key=${n} aria-label=${`Remove the filter ${named(one)}`} onClick=${() => set({ where: where.filter((_, m) => m !== n).join("\n") })}><${Name} text=${one} /> ✕</button>`)}</p>` : null}
        ${live ? html`<${Live} key=${stream} stream=${stream} where=${where} selected=${selected} select=${select} />`
          : html`<${Browse} key=${`${stream} ${turn}`} stream=${stream} where=${where} at=${at} selected=${selected} select=${select} info=${info} place=${place} />`}
      <//>
      ${selected ? html`<${EntryDetail} stream=${stream} id=${selected} onClose=${() => select(null)} tools=${ofEntry} />` : null}
    </div>` : null}
    ${action ? html`<${Action} name=${action[0]} request=${{ key: stream, ...action[1] }} initial=${action[2]} place=${place} onDone=${(text) => { if (action[0] === "delete") select(null); finished(text); }} onClose=${() => setAction(null)} />` : null}
  </div>`;
}
