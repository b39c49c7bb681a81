// Filters that the user saved under a name, in this browser; those of the same stream come first.
import { html, useState, store } from "./base.js";
import { Dialog, Name, Table } from "./parts.js";

export function SavedFilters({ stream, where, onUse }) {
  const [open, setOpen] = useState(false), [all, setAll] = useState([]), [name, setName] = useState("");
  const keep = (rows) => { store.set("filters", rows); setAll(rows); };
  const show = () => { setAll(store.get("filters", [])); setName(where.join(", ")); setOpen(true); };
  const save = (event) => {
    event.preventDefault();
    const text = name.trim();
    if (text && where.length) keep([{ name: text, stream: stream ?? null, where }, ...all.filter((one) => one.name !== text || one.stream !== (stream ?? null))]);
  };
  const rows = [...all].sort((a, b) => (b.stream === stream) - (a.stream === stream));
  return html`<button type="button" onClick=${show}>Saved filters</button>
    ${open ? html`<${Dialog} title="Saved filters" onClose=${() => setOpen(false)}>
      ${where.length ? html`<form class="row" onSubmit=${save}><label for="filter-name">Save <code>${where.join(", ").slice(0, 80)}</code> as</label><input id="filter-name" class="grow" data-first value=${name} onInput=${(e) => setName(e.target.value)} autocomplete="off" /><button class="primary" type="submit">Save</button></form>`
        : html`<p class="muted">Set filters first: then they can be saved here under a name.</p>`}
      <${Table} label="Saved filters" rows=${rows} keyOf=${(one) => `${one.stream}\n${one.name}`} empty="No filters are saved in this browser." columns=${[
        { name: "Name", cell: (one) => html`<button type="button" class="link" onClick=${() => { setOpen(false); onUse(one.where); }}><${Name} text=${one.name} /></button>` },
        { name: "Filters", cell: (one) => html`<code class="wrap">${one.where.join(", ")}</code>` },
        { name: "Saved in", cell: (one) => (one.stream === null ? "" : html`<${Name} text=${one.stream} />`) },
        { name: "", cell: (one) => html`<button type="button" aria-label=${`Delete the saved filters ${one.name}`} onClick=${() => keep(all.filter((other) => other !== one))}>Delete</button>` }]} />
      <div class="row"><button type="button" onClick=${() => setOpen(false)}>Close</button></div><//>` : null}`;
}
