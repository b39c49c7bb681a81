// Overview: the server's figures, streams, keys by type and size, memory over time, slow log, clients.
import { html, useMemo, useState, useEffect, get, link, number, counted, short, size, duration, timeTicks } from "./base.js";
import { Card, Table, Chart, Empty, Name, keyLink, knownStreams, streamColumns } from "./parts.js";

const Tile = ({ name, value, note }) => html`<div class="tile"><dt>${name}</dt><dd>${value} <small>${note}</small></dd></div>`;

const worst = (stream) => stream.groups.reduce((most, one) => (one.lag === null ? most : Math.max(most, one.lag)), stream.groups.length ? 0 : -1);
const pending = (stream) => stream.groups.reduce((sum, one) => sum + one.pending, 0);
const oldest = (stream) => stream.groups.reduce((most, one) => Math.max(most, one.oldest_ms ?? -1), -1);

const read = (cell) => (s) => (s.age === null ? html`<span class="muted" title="not read yet">…</span>` : cell(s));
const STREAMS = [
  ...streamColumns("stream").map((one) => (one.name === "Groups" ? { ...one, cell: read((s) => (s.groups.length ? html`<a href=${link("groups", { key: s.name })}>${s.groups.length}</a>` : "0")) } : one)),
  { name: "Most lag", right: true, of: worst, cell: read((s) => (worst(s) < 0 ? "–" : s.groups.some((g) => g.lag === null) && !worst(s) ? "unknown" : number(worst(s)))) },
  { name: "Pending", right: true, of: pending, cell: read((s) => (s.groups.length ? number(pending(s)) : "–")) },
  { name: "Oldest pending", right: true, of: oldest, cell: read((s) => (oldest(s) < 0 ? "–" : html`<span class=${oldest(s) > 36e5 ? "badge bad" : oldest(s) > 6e4 ? "badge warn" : ""}>${duration(oldest(s))}</span>`)) },
];

function memoryChart({ axis, color }) {
  return {
    scales: { x: { time: true, range: (u) => { const all = u.data[0], end = all[all.length - 1] ?? Date.now() / 1000; return [Math.min(all[0] ?? end, end - 60), end]; } }, y: { range: (u, low, high) => [0, Math.max(1, (high || 1) * 1.15)] } },
    axes: [{ ...axis, space: 90, values: timeTicks }, { ...axis, size: 78, values: (u, all) => all.map(size) }],
    series: [{}, { stroke: color("--c1"), fill: color("--accent-soft"), width: 1.6, points: { show: false } }, { stroke: color("--c3"), width: 1.2, dash: [4, 3], points: { show: false } }],
    cursor: { y: false },
  };
}

function Types({ keys }) {
  const rows = Object.entries(keys.types).sort((a, b) => (b[1].bytes || 0) - (a[1].bytes || 0));
  const most = Math.max(1, ...rows.map(([, one]) => one.bytes || 0));
  if (!rows.length) return html`<${Empty}>No keys seen yet.<//>`;
  return html`<div>${rows.map(([kind, one]) => html`<div class="bar" key=${kind}>
      <a href=${link("keys", { type: kind })}>${kind}</a>
      <div class="track"><i style=${{ width: `${((one.bytes || 0) / most) * 100}%` }}></i></div>
      <span class="small nowrap">${counted(one.keys, "key", "keys")} · ${one.bytes === null ? "size not known" : size(one.bytes)}</span></div>`)}
    <p class="muted small">${keys.complete ? `All ${number(keys.seen)} keys, ${duration(keys.age * 1000)} ago` : `${number(keys.seen)} of ${number(keys.total)} keys so far`}. Sizes: MEMORY USAGE.</p></div>`;
}

// The oldest of the figures in the table, where they are too many to be read every few seconds.
function ageNote(streams) {
  const age = Math.max(0, ...streams.map((one) => one.age ?? 0));
  return age > 15 ? `figures up to ${duration(age * 1000)} old` : "";
}

// The places that the inspector shows, if there are several.
function Places({ place }) {
  const [found, set] = useState([]);
  useEffect(() => {
    place.places.forEach((name, n) => get("place", { place: n }).then((one) => one.server, (error) => error.message).then((text) => set((old) => { const now = [...old]; now[n] = text; return now; })));
  }, []);
  return html`<${Card} title="Places" id="h-places"><${Table} label="Places" rows=${place.places.map((name, n) => ({ name, n, server: found[n] || "…" }))} keyOf=${(one) => one.n} rowClass=${(one) => (one.name === place.name ? "on" : "")} columns=${[
    { name: "Place", of: (one) => one.name, cell: (one) => html`<a class="mono" href=${link("overview", { place: one.n })}><${Name} text=${one.name} /></a>` },
    { name: "Server", of: (one) => one.server, cell: (one) => one.server }]} /><//>`;
}

export default function Overview({ place, overview, theme }) {
  const [first, set] = useState(null);
  useEffect(() => { if (!overview) get("overview").then(set, () => {}); }, []);
  const found = overview || first;
  const history = found ? found.history : [];
  const data = useMemo(() => [history.map((one) => one.time), history.map((one) => one.memory ?? null), history.map((one) => one.rss ?? null)], [found]);
  if (!found) return html`<p class="loading" role="status">Collecting…</p>`;
  const about = found.about, last = history[history.length - 1] || {};
  return html`<div class="grid">
    <dl class="tiles" style=${{ margin: 0 }}>
      <${Tile} name="Keys" value=${number(about.keys)} note="" />
      <${Tile} name="Memory" value=${size(last.memory)} note=${about.maxmemory && about.maxmemory !== "0" ? `of ${size(Number(about.maxmemory))}` : ""} />
      <${Tile} name="Commands" value=${last.ops === undefined ? "?" : short(last.ops)} note="/s" />
      <${Tile} name="Clients" value=${number(last.clients)} note=${about.blocked_clients && about.blocked_clients !== "0" ? `${about.blocked_clients} wait` : ""} />
      <${Tile} name="Streams" value=${number(found.find.streams)} note=${found.find.complete ? "" : "so far"} />
      <${Tile} name="Up" value=${duration(Number(about.uptime_in_seconds || 0) * 1000)} note="" />
    </dl>
    ${place.places.length > 1 ? html`<${Places} place=${place} />` : null}
    <${Card} title="Streams" id="h-streams" tools=${html`<span class="muted small" role="status">${[knownStreams(found), ageNote(found.streams)].filter(Boolean).join("; ")}</span>`}>
      <${Table} label="Streams" columns=${STREAMS} rows=${found.streams} keyOf=${(s) => s.name} most=${500} empty=${knownStreams(found) || "There are no streams."} sort=${["Entries", true]} />
    <//>
    <${Card} title="Keys by type and size" id="h-types" className="s6"><${Types} keys=${found.keys} /><//>
    <${Card} title="Memory over time" id="h-memory" className="s6">
      <${Chart} data=${data} options=${memoryChart} height=${190} theme=${theme} label=${`Memory over time; now ${size(last.memory)}`} />
      <p class="muted small"><b class="good">—</b> used memory, <b class="warn">- -</b> resident; times are UTC</p>
    <//>
    <${Card} title="Largest keys" id="h-large" className="s6" tools=${html`<span class="muted small">${found.keys.complete ? "" : `among ${number(found.keys.seen)} of ${number(found.keys.total)} keys`}</span>`}>
      <${Table} label="Largest keys" rows=${found.keys.largest} most=${10} keyOf=${(one) => one.key} empty="No size is known." columns=${[
        { name: "Key", cell: keyLink },
        { name: "Type", cell: (one) => one.type },
        { name: "Memory", right: true, of: (one) => one.bytes, cell: (one) => size(one.bytes) }]} />
    <//>
    <${Card} title="Slow log" id="h-slow" className="s6">
      <${Table} label="Slow commands" rows=${found.slow} most=${10} empty="No slow command is logged." columns=${[
        { name: "When", cell: (one) => html`<span class="nowrap">${duration(Math.max(0, Date.now() - one.time * 1000))} ago</span>` },
        { name: "Took", right: true, of: (one) => one.microseconds, cell: (one) => html`<span class="nowrap">${duration(one.microseconds / 1000)}</span>` },
        { name: "Command", cell: (one) => html`<code class="wrap" title=${one.command}>${one.command.slice(0, 160)}</code>` }]} />
    <//>
    <${Card} title="Clients" id="h-clients" tools=${html`<span class="muted small">${found.clients.note || ""}</span>`}>
      <${Table} label="Clients" rows=${found.clients.list || []} most=${20} empty="No clients are listed." columns=${[
        { name: "Address", cell: (one) => html`<code><${Name} text=${one.addr} /></code>` },
        { name: "Name", cell: (one) => (one.name ? html`<${Name} text=${one.name} />` : html`<span class="muted">–</span>`) },
        { name: "Library", cell: (one) => (one["lib-name"] ? html`<${Name} text=${one["lib-name"]} />` : html`<span class="muted">–</span>`) },
        { name: "User", cell: (one) => html`<${Name} text=${one.user || "–"} />` },
        { name: "Last command", cell: (one) => html`<code>${one.cmd}</code>` },
        { name: "Age", right: true, of: (one) => Number(one.age), cell: (one) => duration(Number(one.age) * 1000) },
        { name: "Idle", right: true, of: (one) => Number(one.idle), cell: (one) => duration(Number(one.idle) * 1000) },
        { name: "Memory", right: true, of: (one) => Number(one["tot-mem"] || 0), cell: (one) => (one["tot-mem"] ? size(Number(one["tot-mem"])) : "–") }]} />
    <//>
  </div>`;
}
