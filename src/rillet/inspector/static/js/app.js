// The frame: navigation, the place, the cost to the server, and the view of the address.
import { html, render, useState, useEffect, useFeed, get, feed, parseHash, link, go, percent, moment, named, store } from "./base.js";
import { Problem, Dialog } from "./parts.js";

const icon = (path) => html`<svg viewBox="0 0 24 24" aria-hidden="true">${path}</svg>`;
const VIEWS = {
  overview: ["Overview", icon(html`<path d="M4 13h6V4H4zM14 20h6v-9h-6zM4 20h6v-4H4zM14 8h6V4h-6z" />`), () => import("./overview.js"), "o"],
  stream: ["Stream", icon(html`<path d="M3 7c4-4 6-4 9 0s5 4 9 0M3 13c4-4 6-4 9 0s5 4 9 0M3 19c4-4 6-4 9 0s5 4 9 0" />`), () => import("./stream.js"), "s"],
  groups: ["Groups", icon(html`<circle cx="8" cy="8" r="3" /><circle cx="17" cy="10" r="2.4" /><path d="M2.5 20c.5-4 3-6 5.500-6s5 2 5.500 6M14 16c3-2 6.500 0 7 4" />`), () => import("./groups.js"), "g"],
  letters: ["Dead letters", icon(html`<path d="M3 7h18v11H3zM3 7l9 7 9-7M9 3h6" />`), () => import("./letters.js"), "d"],
  keys: ["Keys", icon(html`<circle cx="8" cy="15" r="4" /><path d="M11 12l8-8M16 7l3 3M13.500 9.500l2 2" />`), () => import("./keys.js"), "k"],
  bytes: ["Bytes", icon(html`<path d="M4 5h4v5H4zM4 14h4v5H4zM12 5v5M16 5h4v5h-4zM12 14h4v5h-4zM20 14v5" />`), () => import("./bytes.js"), "b"],
  console: ["Console", icon(html`<path d="M4 6l5 5-5 5M12 18h8" />`), () => import("./console.js"), "c"],
  search: ["Search", icon(html`<circle cx="10.500" cy="10.500" r="6" /><path d="M15 15l5 5" />`), () => import("./search.js"), "f"],
};
// The key goes with the user from view to view: that of a stream to the views of streams, any key to its bytes.
const OF_STREAMS = ["stream", "groups", "search"];
const carries = (from, to) => to === from || to === "bytes" || (to === "keys" && from === "bytes") || (OF_STREAMS.includes(to) && from !== "keys");
const loaded = {};

function useTheme() {
  const [theme, set] = useState(store.get("theme", null) || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
  useEffect(() => { document.documentElement.dataset.theme = theme; }, [theme]);
  return [theme, () => { const next = theme === "dark" ? "light" : "dark"; store.set("theme", next); set(next); }];
}

function Cost({ budget }) {
  if (!budget) return null;
  return html`<div title="Time that the inspector spent with the server at rest, in the last minute, as a share of one core">
    <div>Cost at rest: <b>${percent(budget.rest)}</b> <span>of a core, limit ${percent(budget.limit)}</span></div>
    <div class="meter" role="meter" aria-label="Cost to the server at rest" aria-valuemin="0" aria-valuemax="1"
      aria-valuenow=${(budget.rest / budget.limit).toFixed(3)}><i style=${{ width: `${Math.min(100, (budget.rest / budget.limit) * 100)}%` }}></i></div></div>`;
}

function Help({ onClose }) {
  return html`<${Dialog} title="Shortcuts" onClose=${onClose}><table><tbody>
    ${Object.values(VIEWS).map(([name, , , key]) => html`<tr key=${key}><td><code>g ${key}</code></td><td>${name}</td></tr>`)}
    <tr><td><code>/</code></td><td>Choose a stream, or the first field of the view</td></tr>
    <tr><td><code>↑ ↓</code></td><td>Next entry of a table; next element in Bytes (also ← →)</td></tr>
    <tr><td><code>Home End</code></td><td>First or last entry of a stream</td></tr>
    <tr><td><code>space</code></td><td>Pause the live tail</td></tr>
    <tr><td><code>?</code></td><td>This help</td></tr></tbody></table>
    <form method="dialog" class="row"><button class="primary" data-first>Close</button></form><//>`;
}

function App() {
  const [place, setPlace] = useState(null), [error, setError] = useState("");
  const [where, setWhere] = useState(parseHash());
  const [View, setView] = useState(null);
  const [overview, setOverview] = useState(null);
  const [help, setHelp] = useState(false), [lost, setLost] = useState(null);
  const [theme, turn] = useTheme();

  const number = where.values.place || "0";
  useEffect(() => { setPlace(null); setOverview(null); setError(""); get("place").then(setPlace, (one) => setError(one.message)); }, [number]);
  useEffect(() => {
    const changed = () => setWhere(parseHash());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  const view = VIEWS[where.view] ? where.view : "overview";
  const key = where.values.key;
  useEffect(() => {
    document.title = `${key !== undefined ? named(key) + " – " : ""}${VIEWS[view][0]} – rillet inspector`;
    if (loaded[view]) { setView(() => loaded[view]); return; }
    let gone = false;
    VIEWS[view][2]().then((module) => { loaded[view] = module.default; if (!gone) setView(() => module.default); });
    return () => { gone = true; };
  }, [view, key]);
  // One event stream: the view of a stream adds its tail to it.
  const tails = view === "stream" && where.values.live === "1";
  useEffect(() => {
    feed({ stream: view === "stream" || view === "groups" ? key : undefined, tail: tails ? "1" : "", where: tails && where.values.where ? where.values.where.split("\n") : [] });
  }, [view, key, tails, where.values.where, number]);
  useFeed("overview", setOverview, []);
  useFeed("lost", setLost, []);
  useEffect(() => {
    let before = "";
    const pressed = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) return;
      if (before === "g") {
        const found = Object.entries(VIEWS).find(([, one]) => one[3] === event.key);
        if (found) { event.preventDefault(); const now = parseHash(); go(found[0], carries(now.view, found[0]) ? { key: now.values.key } : {}); }
      }
      before = event.key;
      if (event.key === "?") setHelp(true);
      if (event.key === "/") { const field = document.querySelector("main input"); if (field) { event.preventDefault(); field.focus(); field.select(); } }
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
  const Shown = View;
  return html`<div class="frame">
    <a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); document.getElementById("main").focus(); }}>Skip to the view</a>
    <div class="side">
      <div class="brand"><img src="/static/icon.svg" alt="" /><span>rillet inspector</span></div>
      <nav aria-label="Views">${Object.entries(VIEWS).map(([name, [title, path]]) => html`
        <a key=${name} href=${link(name, carries(view, name) ? { key } : {})}
          aria-current=${name === view ? "page" : undefined}>${path}${title}</a>`)}</nav>
      <footer>
        <${Cost} budget=${(overview && overview.budget) || (place && place.budget)} />
        <div class="row"><button type="button" onClick=${turn}>${theme === "dark" ? "Light" : "Dark"}</button>
          <button type="button" onClick=${() => setHelp(true)}>Shortcuts</button></div>
      </footer>
    </div>
    <main class="main" id="main" tabindex="-1">
      <div class="head"><h1>${VIEWS[view][0]}</h1>
        ${place && place.places.length > 1 ? html`<select aria-label="Place" value=${number} onChange=${(e) => go(view, { place: e.target.value === "0" ? "" : e.target.value })}>${place.places.map((name, n) => html`<option key=${n} value=${String(n)}>${name}</option>`)}</select>` : null}
        ${place ? html`<span class="place">${place.places.length > 1 ? "" : place.name}${place.places.length > 1 ? "" : " · "}${place.server} · ${place.kind}
          ${place.write ? html` <span class="badge warn">writes allowed</span>` : html` <span class="badge">read-only</span>`}</span>` : null}</div>
      ${lost === null ? null : html`<p class="note warn" role="alert">The inspector does not answer. The figures on this page are those of ${moment(lost)} UTC.</p>`}
      <${Problem} text=${error || (overview && overview.problem)} />
      ${Shown && loaded[view] === Shown && place ? html`<${Shown} key=${`${view} ${number}`} place=${place} values=${where.values} overview=${overview} theme=${theme} />` : null}
    </main>
    ${help ? html`<${Help} onClose=${() => setHelp(false)} />` : null}
  </div>`;
}

document.documentElement.dataset.theme = store.get("theme", null) || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
const root = document.getElementById("app");
root.textContent = "";
render(html`<${App} />`, root);
