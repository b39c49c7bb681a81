// Preact with htm, requests, the event stream, the address, and texts of numbers.
import { h, render, Fragment } from "../vendor/preact.js";
import { useState, useEffect, useRef, useMemo, useCallback } from "../vendor/hooks.js";
import htm from "../vendor/htm.js";

export const html = htm.bind(h);
export { h, render, Fragment, useState, useEffect, useRef, useMemo, useCallback };

// ---- requests ----

// An empty text is left out, except as a name: Redis allows the empty one. A name that is not there is undefined. Every
// request and link is about the place of the address, unless it names another one.
const NAMES = new Set(["key", "stream", "group", "consumer", "element"]);
export const query = (values) => {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries({ place: parseHash().values.place, ...values }))
    for (const one of Array.isArray(value) ? value : [value])
      if (one !== undefined && one !== null && (one !== "" || NAMES.has(name))) found.append(name, one);
  return found.toString();
};

async function answerOf(response) {
  let data;
  try { data = await response.json(); } catch (error) {
    if (response.ok) throw error;  // such as a request that was given up while its answer arrived
    data = { error: `${response.status} ${response.statusText}` };
  }
  if (!response.ok) throw Object.assign(new Error(data.error || `status ${response.status}`), { status: response.status });
  return data;
}

export const get = async (path, values, signal) => answerOf(await fetch(`/api/${path}?${query(values)}`, { signal }));

export const post = async (path, body) => answerOf(await fetch(`/api/${path}?${query()}`, {
  method: "POST", headers: { "content-type": "application/json", "x-rillet-inspector": "1" }, body: JSON.stringify(body),
}));

// Calls found(item) for each line of JSON while it arrives.
export async function lines(path, values, found, signal) {
  const response = await fetch(`/api/${path}?${query(values)}`, { signal });
  if (!response.ok) return answerOf(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) found(JSON.parse(part));
  }
}

// A request whose answer is state: {data, error, busy, again()}. A newer request cancels the older one. The answer about
// one subject (a key) is not shown for another one.
export function useGet(path, values, deps, subject) {
  const [state, set] = useState({ data: null, error: null, busy: true, subject });
  const [turn, again] = useState(0);
  useEffect(() => {
    if (!path) { set({ data: null, error: null, busy: false, subject }); return; }
    const cancel = new AbortController();
    set((old) => ({ ...old, busy: true }));
    get(path, values, cancel.signal).then(
      (data) => cancel.signal.aborted || set({ data, error: null, busy: false, subject }),
      (error) => cancel.signal.aborted || set({ data: null, error: error.message, busy: false, subject }));
    return () => cancel.abort();
  }, [path, turn, ...deps]);
  return { ...(state.subject === subject ? state : { data: null, error: null, busy: true }), again: () => again((n) => n + 1) };
}

// ---- the one event stream ----

// The event "lost" says since when there are no updates (null: there are), so that old figures do not look like new ones.
let source = null, sourceUrl = "", lost = null;
const listeners = new Map();
const tell = (name, data) => { for (const one of listeners.get(name) || []) one(data); };
const setLost = (since) => { if ((lost === null) !== (since === null)) { lost = since; tell("lost", lost); } };
export function feed(values) {
  const url = `/api/feed?${query(values)}`;
  if (url === sourceUrl && source && source.readyState !== 2) return;
  if (source) source.close();
  sourceUrl = url;
  const own = (source = new EventSource(url));
  own.onerror = () => {
    if (own !== source) return;
    setLost(Date.now());
    // The browser opens a broken connection again, but not a refused one.
    if (own.readyState === 2) setTimeout(() => { if (own === source) feed(values); }, 5000);
  };
  for (const name of ["overview", "entries", "problem"])
    own.addEventListener(name, (event) => { setLost(null); tell(name, JSON.parse(event.data)); });
}
export function useFeed(name, handler, deps) {
  useEffect(() => {
    const all = listeners.get(name) || new Set();
    listeners.set(name, all);
    all.add(handler);
    return () => all.delete(handler);
  }, deps);
}
addEventListener("pagehide", () => { if (source) source.close(); source = null; sourceUrl = ""; });

// ---- the address: #/view?name=value ----

export function parseHash() {
  const [path, rest] = (location.hash.slice(1) || "/overview").split("?");
  return { view: path.replace(/^\//, "") || "overview", values: Object.fromEntries(new URLSearchParams(rest || "")) };
}
export const link = (view, values) => { const q = query(values); return `#/${view}${q ? "?" + q : ""}`; };
export function go(view, values, replace) {
  const to = link(view, values);
  if (replace) { history.replaceState(null, "", to); dispatchEvent(new Event("hashchange")); } else location.hash = to;
}

// ---- texts ----

export const number = (n) => (n === null || n === undefined ? "?" : n.toLocaleString("en-US"));
export const counted = (n, one, several) => `${number(n)} ${n === 1 ? one : several}`;
export const short = (n) => {
  if (n === null || n === undefined) return "?";
  for (const [limit, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) if (n >= limit) return `${(n / (unit === "k" ? 1e3 : limit)).toFixed(n / limit < 10 ? 1 : 0)}${unit}`;
  return Number.isInteger(n) ? String(n) : n.toFixed(1);
};
export const perTime = (rate) => {
  if (rate === null || rate === undefined) return "–";
  if (rate === 0 || rate >= 0.1) return `${short(rate)}/s`;
  return rate * 3600 >= 1 ? `${(rate * 3600).toFixed(rate * 3600 < 10 ? 1 : 0)}/h` : `${(rate * 86400).toFixed(1)}/d`;
};
export const size = (n) => {
  if (n === null || n === undefined) return "?";
  for (const [limit, unit] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) if (n >= limit) return `${(n / limit).toFixed(1)} ${unit}`;
  return `${Math.round(n)} B`;
};
export const duration = (ms) => {
  if (ms === null || ms === undefined || ms < 0) return "–";
  for (const [limit, unit] of [[31557600000, "years"], [864e5, "d"], [36e5, "h"], [6e4, "min"], [1e3, "s"]]) if (ms >= limit) return `${(ms / limit).toFixed(ms / limit < 10 ? 1 : 0)} ${unit}`;
  return `${Math.round(ms)} ms`;
};
export const isTime = (ms) => ms >= 946684800000 && ms < 253402300800000;
export const moment = (ms) => (isTime(ms) ? new Date(ms).toISOString().replace("T", " ").replace("Z", "") : "");
// One format of times on all pages: ISO 8601, UTC. A chart's axis has the part that fits its steps.
export const timeTicks = (u, all, axis, space, step) => all.map((one, n) => {
  if (!isTime(one * 1000)) return one < 1e12 ? String(Math.round(one * 1e6) / 1e3) : (one * 1000).toExponential(1);
  const [day, clock] = moment(one * 1000).split(" ");
  if (step >= 86400) return day;
  const before = n && isTime(all[n - 1] * 1000) ? moment(all[n - 1] * 1000).slice(0, 10) : "";
  return clock.slice(0, step >= 60 ? 5 : step >= 1 ? 8 : 12) + (day === before ? "" : `\n${day}`);
});
// The position of an ID, or of a time in UTC; "" for no text, null for another one.
export function toPosition(text) {
  const value = text.trim();
  if (!value) return "";
  if (/^\d+(-\d+)?$/.test(value)) return value;
  const ms = Date.parse(/[zZ]|[+-]\d\d:?\d\d$/.test(value) ? value : value.replace(" ", "T") + (value.length > 10 ? "Z" : "T00:00Z"));
  return Number.isNaN(ms) ? null : String(ms);
}
export const msOf = (id) => Number(String(id || "0").replace("(", "").split("-")[0]);
// A name in a title, a label or an option: a long one is cut.
export const named = (text) => (text === "" ? "(empty name)" : text.length > 80 ? `${text.slice(0, 60)}…${text.slice(-16)}` : text);
export const percent = (share) => `${(share * 100).toFixed(share && share < 0.001 ? 3 : 2)} %`;
export const store = {
  get: (name, other) => { try { return JSON.parse(localStorage.getItem(`rillet.${name}`)) ?? other; } catch { return other; } },
  set: (name, value) => { try { localStorage.setItem(`rillet.${name}`, JSON.stringify(value)); } catch { /* no storage */ } },
};
