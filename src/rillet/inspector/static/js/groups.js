// Groups: lag or the reason why it is unknown, consumers, ages, and the workbench for pending entries.
import { html, useState, useEffect, useMemo, useGet, get, go, link, number, counted, duration, moment, msOf, named } from "./base.js";
import { Card, Table, EntryCells, EntryDetail, KeyPicker, Name, Problem, Empty, activeAt, ago, knownStreams, useSteady } from "./parts.js";
import { ACTIONS, Action } from "./actions.js";

const STUCK = 60000; // a consumer with pending entries that was idle so long
const isStuck = (one) => one.pending > 0 && one.idle_ms > STUCK;
const Lag = ({ group }) => (group.lag === null
  ? html`<span class="badge warn" title=${group.lag_note}>unknown</span>`
  : html`<span title=${group.lag_note}>${group.lag_exact ? "" : "≤ "}${number(group.lag)}</span>`);

const Owner = ({ part, now }) => (part.state === "done" ? html`<span class="muted">handled</span>`
  : part.state === "later" ? html`<span class="muted">after an earlier epoch</span>`
  : part.consumer === null ? html`<span class="badge warn">no consumer</span>`
  : html`<span class="mono"><${Name} text=${part.consumer} /></span> ${part.lease_until === null || part.lease_until <= now ? html`<span class="badge bad">lease ended</span>` : html`<span class="muted small nowrap">lease ${duration((part.lease_until - now) * 1000)}</span>`}`);

function Partitions({ rows, group, stream, now }) {
  return html`<${Card} title=${html`Partitions of <${Name} text=${rows.length ? rows[0].stream : ""} />`} id="h-partitions">
    <${Table} label="Partitions" rows=${rows} keyOf=${(one) => one.key} rowClass=${(one) => (one.key === stream ? "on" : "")} empty="The group reads no partition." columns=${[
      { name: "Epoch", right: true, of: (one) => one.epoch, cell: (one) => one.epoch },
      { name: "Partition", right: true, of: (one) => one.number, cell: (one) => html`<button type="button" class="link" onClick=${() => go("groups", { key: one.key, group: group.name })}>${one.number}</button>` },
      { name: "Entries", right: true, of: (one) => one.length, cell: (one) => number(one.length) },
      { name: "Lag", right: true, of: (one) => one.lag, cell: (one) => html`<${Lag} group=${one} />` },
      { name: "Pending", right: true, of: (one) => one.pending, cell: (one) => number(one.pending) },
      { name: "Read by", of: (one) => one.consumer, cell: (one) => html`<${Owner} part=${one} now=${now} />` }]} /><//>`;
}

function Ages({ group }) {
  const rows = Object.entries(group.ages), most = Math.max(1, ...rows.map(([, n]) => n));
  return html`<div>${rows.map(([name, n]) => html`<div class="bar" key=${name}><span class="muted small">${name.replace("<", "< ").replace(">=", "≥ ")}</span>
    <div class="track"><i style=${{ width: n ? `${Math.max(1, (n / most) * 100)}%` : 0, minWidth: n ? undefined : 0, background: name === ">=1d" || name === "<1d" ? "var(--c5)" : name === "<1h" || name === "<10m" ? "var(--c3)" : "var(--c1)" }}></i></div><span class="small">${number(n)}</span></div>`)}
    <p class="muted small">${group.examined < group.pending ? `Of the first ${number(group.examined)} of ${number(group.pending)} pending entries.` : `${counted(group.pending, "pending entry", "pending entries")} by the time since delivery.`}</p></div>`;
}

function Workbench({ stream, group, place, values, reload }) {
  const [pages, setPages] = useState([]), [next, setNext] = useState(null), [error, setError] = useState(""), [turn, setTurn] = useState(0);
  const [chosen, setChosen] = useState(new Set()), [action, setAction] = useState(null), [done, setDone] = useState(""), [shown, show] = useState(null);
  const [idle, setIdle] = useState("0");
  const consumer = values.consumer;
  const load = (start, old) => get("pending", { key: stream, group: group.name, consumer, idle, start, count: 50 }).then((one) => {
    setPages([...old, ...one.pending]); setNext(one.next); setError("");
  }, (one) => setError(one.message));
  useEffect(() => { setChosen(new Set()); show(null); load("-", []); }, [stream, group.name, consumer, idle, turn]);
  const toggle = (id) => setChosen((old) => { const now = new Set(old); if (!now.delete(id)) now.add(id); return now; });
  const all = pages.length > 0 && pages.every((one) => chosen.has(one.id));
  const request = { key: stream, group: group.name, ids: [...chosen] };
  const finished = (text) => { setAction(null); setDone(text); setTurn((n) => n + 1); reload(); };
  // XPENDING has an empty name for a released entry, and for one of a consumer whose name is empty.
  const unnamed = group.consumers.some((one) => one.name === "" && one.pending > 0);
  const columns = [
    { name: "", cell: (one) => html`<input type="checkbox" aria-label=${`Select ${one.id}`} checked=${chosen.has(one.id)} onClick=${(e) => e.stopPropagation()} onChange=${() => toggle(one.id)} />` },
    { name: "Entry", of: (one) => one.ms, cell: (one) => html`<button type="button" class="link nowrap" onClick=${(e) => { e.stopPropagation(); show(one.id); }}>${one.id}</button>` },
    { name: "Held by", of: (one) => one.consumer, cell: (one) => (one.consumer === null && !unnamed ? html`<span class="badge warn">released</span>` : html`<span class="mono"><${Name} text=${one.consumer ?? ""} /></span>`) },
    { name: "For", right: true, of: (one) => one.idle, cell: (one) => html`<span class="nowrap ${one.idle > 36e5 ? "bad" : one.idle > STUCK ? "warn" : ""}">${duration(one.idle)}</span>` },
    { name: "Deliveries", right: true, of: (one) => one.deliveries, cell: (one) => html`<span class=${one.deliveries > 3 ? "badge bad" : ""}>${one.deliveries}</span>` },
    { name: "The entry", cell: (one) => (one.gone ? html`<span class="badge bad" title="It was deleted or trimmed while it was pending">no longer in the stream</span>` : html`<${EntryCells} fields=${one.fields} most=${6} />`) },
  ];
  return html`<${Card} title="Pending workbench" id="h-pending" tools=${html`
      <label for="by">Consumer</label><select id="by" value=${consumer === undefined ? "" : `=${consumer}`} onChange=${(e) => go("groups", { ...values, consumer: e.target.value ? e.target.value.slice(1) : undefined })}><option value="">all</option>${group.consumers.map((one) => html`<option key=${one.name} value=${`=${one.name}`} title=${one.name}>${named(one.name)} (${one.pending})</option>`)}</select>
      <label for="idle">Held for</label><select id="idle" value=${idle} onChange=${(e) => setIdle(e.target.value)}>${[["0", "any time"], ["10000", "10 s"], ["60000", "1 min"], ["600000", "10 min"], ["3600000", "1 h"], ["86400000", "1 d"]].map(([v, t]) => html`<option key=${v} value=${v}>${t}</option>`)}</select>`}>
    <div class="stack">
      <div class="row" role="toolbar" aria-label="Actions on the selected entries">
        <button type="button" onClick=${() => setChosen(all ? new Set() : new Set(pages.map((one) => one.id)))}>${all ? "Select none" : `Select ${pages.length}`}</button>
        ${["claim", "ack", "nack", "dead-letter", "requeue"].map((name) => html`<button type="button" key=${name} disabled=${!chosen.size} onClick=${() => setAction(name)}>${ACTIONS[name].title}</button>`)}
        <span class="muted small" role="status">${done || (chosen.size ? `${chosen.size} selected` : "")}</span></div>
      <${Problem} text=${error} />
      <div class="split ${shown ? "open" : ""}"><div>
        <${Table} label="Pending entries" columns=${columns} rows=${pages} most=${1000} keyOf=${(one) => one.id} rowClass=${(one) => (chosen.has(one.id) ? "on" : "")} onRow=${(one) => toggle(one.id)} empty="No entry is pending here." />
        ${next ? html`<p class="row"><button type="button" onClick=${() => load(next, pages)}>More</button></p>` : null}</div>
        ${shown ? html`<${EntryDetail} stream=${stream} id=${shown} onClose=${() => show(null)} />` : null}</div>
    </div>
    ${action ? html`<${Action} name=${action} request=${request} place=${place} onDone=${finished} onClose=${() => setAction(null)} initial=${action === "dead-letter" ? { target: `${stream}.dead` } : {}} />` : null}
  <//>`;
}

// A view without a stream: the groups to choose from, those at work first. A stream without groups has a row, too.
function ChooseGroup({ overview }) {
  const rows = useMemo(() => (overview ? overview.streams : []).flatMap((stream) => (stream.groups.length
    ? stream.groups.map((group) => ({ stream, group, active: groupActiveAt(stream, group) }))
    : [{ stream, group: null, active: -1 }])), [overview]);
  const keyOf = (one) => `${one.stream.name}\n${one.group ? one.group.name : ""}`;
  const [steady, box] = useSteady(rows, keyOf, (a, b) => b.active - a.active || activeAt(b.stream) - activeAt(a.stream));
  const only = overview && overview.find.complete && overview.streams.length === 1 ? overview.streams[0].name : null;
  useEffect(() => { if (only !== null) go("groups", { key: only }, true); }, [only]);
  const open = (one) => go("groups", { key: one.stream.name, group: one.group ? one.group.name : undefined });
  const of = (part) => ({ of: (one) => (one.group ? part(one.group) ?? -1 : -2) });
  const cell = (show) => (one) => (one.group ? show(one.group) : html`<span class="muted">${one.stream.age === null ? "…" : "–"}</span>`);
  return html`<${Card} title="Choose a group" id="h-choose" tools=${html`<span class="muted small" role="status">${rows.length ? knownStreams(overview) : ""}</span>`}>
    <div ref=${box}><${Table} label="Groups of all streams" rows=${steady} keyOf=${keyOf} onRow=${open} most=${500} empty=${knownStreams(overview) || "There are no streams."} columns=${[
      { name: "Stream", of: (one) => one.stream.name, cell: (one) => html`<a class="mono" href=${link("groups", { key: one.stream.name, group: one.group ? one.group.name : undefined })} onClick=${(e) => e.stopPropagation()}><${Name} text=${one.stream.name} /></a>` },
      { name: "Group", of: (one) => (one.group ? one.group.name : ""), cell: (one) => (one.group ? html`<span class="mono"><${Name} text=${one.group.name} /></span>` : html`<span class="muted">${one.stream.age === null ? "…" : "no groups"}</span>`) },
      { name: "Last active", right: true, of: (one) => one.active, cell: (one) => ago(one.active) },
      { name: "Lag", right: true, ...of((group) => group.lag), cell: cell((group) => html`<${Lag} group=${group} />`) },
      { name: "Pending", right: true, ...of((group) => group.pending), cell: cell((group) => number(group.pending)) },
      { name: "Oldest pending", right: true, ...of((group) => group.oldest_ms), cell: cell((group) => html`<span class=${group.oldest_ms > 36e5 ? "badge bad" : group.oldest_ms > STUCK ? "badge warn" : ""}>${duration(group.oldest_ms)}</span>`) },
      { name: "Consumers", right: true, ...of((group) => group.consumers.length), cell: cell((group) => { const stuck = group.consumers.filter(isStuck).length; return html`${group.consumers.length}${stuck ? html` <span class="badge bad">${stuck} stuck</span>` : ""}`; }) }]} /></div><//>`;
}
// When a consumer of the group last sent a command; -1 if none ever did.
function groupActiveAt(stream, group) {
  const idle = Math.min(...group.consumers.map((one) => one.idle_ms));
  return Number.isFinite(idle) ? Date.now() - (stream.age || 0) * 1000 - idle : -1;
}

export default function GroupsView({ place, values, overview }) {
  const stream = values.key;
  const { data, error, again } = useGet(stream !== undefined ? "groups" : "", { key: stream }, [stream], stream);
  const live = overview && overview.streams.find((one) => one.name === stream && one.age !== null);
  const [action, setAction] = useState(null);
  const groups = useMemo(() => {
    if (!data) return [];
    if (!live || !data) return data.groups;
    // The live figures examine fewer pending entries: ages and consumers stay those of the last full answer.
    return data.groups.map((one) => { const now = live.groups.find((other) => other.name === one.name); return now ? { ...one, lag: now.lag, lag_exact: now.lag_exact, lag_note: now.lag_note, pending: now.pending, last_delivered_id: now.last_delivered_id, consumers: now.consumers } : one; });
  }, [data, live]);
  useEffect(() => { const timer = setInterval(() => { if (!document.hidden) again(); }, 15000); return () => clearInterval(timer); }, [stream]);
  const group = groups.find((one) => one.name === values.group) || groups.reduce((most, one) => (!most || one.pending > most.pending ? one : most), null);
  const open = (one) => go("groups", { key: stream, group: one.name });
  const reload = () => again();
  return html`<div class="grid">
    <div class="row"><${KeyPicker} view="groups" value=${stream} overview=${overview} /></div>
    ${stream === undefined ? html`<${ChooseGroup} overview=${overview} />` : null}
    <${Problem} text=${error} />
    ${data && !groups.length ? html`<${Empty}>The stream has no consumer groups. <button type="button" onClick=${() => setAction(["create-group"])}>Create a group</button><//>` : null}
    ${groups.length ? html`<${Card} title="Groups" id="h-groups" tools=${html`<button type="button" onClick=${() => setAction(["create-group"])}>Create a group</button>`}>
      <${Table} label="Groups" rows=${groups} keyOf=${(one) => one.name} rowClass=${(one) => (group && one.name === group.name ? "on" : "")} onRow=${open} columns=${[
        { name: "Group", of: (one) => one.name, cell: (one) => html`<button type="button" class="link" aria-pressed=${group && one.name === group.name} onClick=${() => open(one)}><${Name} text=${one.name} /></button>` },
        { name: "Lag", right: true, of: (one) => one.lag, cell: (one) => html`<${Lag} group=${one} />` },
        { name: "Last delivered", cell: (one) => html`<span class="mono nowrap">${one.last_delivered_id}</span> <span class="muted small nowrap">${moment(msOf(one.last_delivered_id))}</span>` },
        { name: "Read", right: true, of: (one) => one.entries_read, cell: (one) => (one.entries_read === null ? html`<span class="muted" title="The server does not know how many entries the group has read">–</span>` : number(one.entries_read)) },
        { name: "Pending", right: true, of: (one) => one.pending, cell: (one) => number(one.pending) },
        { name: "Oldest", right: true, of: (one) => one.oldest_ms, cell: (one) => html`<span class=${one.oldest_ms > 36e5 ? "badge bad" : one.oldest_ms > STUCK ? "badge warn" : ""}>${duration(one.oldest_ms)}</span>` },
        { name: "Retries", right: true, of: (one) => one.retries.number, cell: (one) => (one.retries.number ? html`<span title=${`The next one is due ${moment(one.retries.next_due * 1000)}`}>${number(one.retries.number)}</span>` : "–") },
        { name: "Most deliveries", right: true, of: (one) => one.deliveries, cell: (one) => one.deliveries ?? "–" },
        { name: "Consumers", right: true, of: (one) => one.consumers.length, cell: (one) => { const stuck = one.consumers.filter(isStuck).length; return html`${one.consumers.length}${stuck ? html` <span class="badge bad">${stuck} stuck</span>` : ""}`; } }]} />
      ${data.delayed && data.delayed.number ? html`<p class="note small">${counted(data.delayed.number, "delayed entry waits", "delayed entries wait")}. The next one is due ${moment(data.delayed.next_due * 1000)}, and was added ${moment(data.delayed.next_since * 1000)}.</p>` : null}
      ${group && group.order.by !== null ? html`<p class="note small"><b><${Name} text=${group.name} /></b> is in order by <b><${Name} text=${group.order.by} /></b>: ${counted(group.order.keys, "key has", "keys have")} pending messages, ${counted(group.order.waiting, "message waits", "messages wait")} behind others.</p>` : null}
      ${group && group.partition ? html`<p class="note small">Partition ${group.partition.number} of <b><${Name} text=${group.partition.stream} /></b>, epoch ${group.partition.epoch}. <${Owner} part=${group.partition} now=${data.time} />.</p>` : null}
      ${group && group.lag_note ? html`<p class="note small">Lag of <b><${Name} text=${group.name} /></b>: ${group.lag_note}.</p>` : null}<//>` : null}
    ${group && data.partitions.length ? html`<${Partitions} rows=${data.partitions.filter((one) => one.group === group.name)} group=${group} stream=${stream} now=${data.time} />` : null}
    ${group ? html`
      <${Card} title=${html`Consumers of <${Name} text=${group.name} />`} id="h-consumers" className="s7" tools=${html`<button type="button" onClick=${() => setAction(["move"])}>Move the group</button><button type="button" onClick=${() => setAction(["delete-group"])}>Delete the group</button>`}>
        <${Table} label="Consumers" rows=${group.consumers} keyOf=${(one) => one.name} rowClass=${(one) => (one.name === values.consumer ? "on" : "")} empty="The group has no consumers." sort=${["Pending", true]} columns=${[
          { name: "Consumer", of: (one) => one.name, cell: (one) => html`<button type="button" class="link" onClick=${() => go("groups", { key: stream, group: group.name, consumer: one.name })}><${Name} text=${one.name} /></button>` },
          { name: "State", cell: (one) => (isStuck(one) ? html`<span class="badge bad">stuck</span>` : one.pending ? html`<span class="badge ok">working</span>` : html`<span class="badge">free</span>`) },
          { name: "Pending", right: true, of: (one) => one.pending, cell: (one) => number(one.pending) },
          { name: "Idle", right: true, of: (one) => one.idle_ms, cell: (one) => duration(one.idle_ms) },
          { name: "Inactive", right: true, of: (one) => one.inactive_ms ?? -1, cell: (one) => (one.inactive_ms === null ? html`<span class="muted" title="It never received an entry, or the server is older than Redis 7.2">–</span>` : duration(one.inactive_ms)) },
          { name: "", cell: (one) => html`<button type="button" aria-label=${`Delete the consumer ${named(one.name)}`} onClick=${(e) => { e.stopPropagation(); setAction(["delete-consumer", one.name]); }}>Delete</button>` }]} />
        <p class="muted small">Idle: since its last command. Inactive: since it last received an entry. Stuck: it holds entries and was idle for a minute.</p>
      <//>
      <${Card} title="Ages of pending entries" id="h-ages" className="s5"><${Ages} group=${group} /><//>
      <${Workbench} key=${`${stream}\n${group.name}`} stream=${stream} group=${group} place=${place} values=${{ ...values, key: stream, group: group.name }} reload=${reload} />` : null}
    ${action ? html`<${Action} name=${action[0]} request=${{ key: stream, ...(action[0] === "create-group" ? {} : { group: group.name, consumer: action[1] }) }} place=${place} onDone=${() => { setAction(null); again(); }} onClose=${() => setAction(null)} initial=${{ move: { id: group && group.last_delivered_id }, "create-group": { id: "0" } }[action[0]] || {}} />` : null}
  </div>`;
}
