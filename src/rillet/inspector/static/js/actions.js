// Actions that write: a dialog with the commands that will run, and the button that runs exactly these.
import { html, useState, useEffect, post, counted, toPosition } from "./base.js";
import { Confirm, Dialog, Problem } from "./parts.js";

// A field is [name, label, kind, optional]; kind "id" also takes a time, "lines" has several lines.
export const ACTIONS = {
  claim: { title: "Claim", text: "The entries become those of another consumer, which must read them with XREADGROUP ... 0, or process them now.", fields: [["consumer", "Consumer"]] },
  ack: { title: "Acknowledge", text: "Their processing ends: no consumer will receive them again.", danger: true },
  nack: { title: "Release (nack)", text: "The entries have no consumer until the next XAUTOCLAIM or XREADGROUP CLAIM." },
  "dead-letter": { title: "Dead-letter", text: "Each entry is added to another stream, with its origin, and acknowledged here.", fields: [["target", "Stream for dead letters"]], danger: true },
  requeue: { title: "Requeue", text: "Each entry is added to this stream again, as a new one, and the old one is acknowledged." },
  "requeue-letters": { title: "Requeue", text: "Each letter becomes a new entry of the stream it came from, with the fields of its own, and is deleted here. All groups of that stream receive it.", fields: [["target", "To another stream", "", true]] },
  drop: { title: "Drop", action: "delete", text: "The letters are deleted for good.", danger: true },
  move: { title: "Move the group", text: "The group continues after this ID, or at this time. Entries before it are skipped, entries after it are delivered (again). Pending entries stay.", fields: [["id", "ID, time (UTC), 0 or $", "id"]], danger: true },
  "create-group": { title: "Create a group", text: "The group receives the entries after this ID or from this time on: 0 is all of them, $ only new ones.", fields: [["group", "Name"], ["id", "ID, time (UTC), 0 or $", "id"]] },
  "delete-group": { title: "Delete the group", text: "Its position and its pending entries are forgotten. The entries of the stream stay.", danger: true },
  "delete-consumer": { title: "Delete the consumer", text: "Its pending entries are forgotten: no consumer will receive them.", danger: true },
  add: { title: "Add an entry", text: "A line name=value for each field.", fields: [["fields", "Fields", "lines"]] },
  delete: { title: "Delete", text: "The entries are deleted. A consumer that holds one keeps it as pending, without fields.", danger: true },
  trim: { title: "Trim", text: "All entries before this ID or time are deleted.", fields: [["id", "First ID or time (UTC) to keep", "id"]], danger: true },
  "delete-key": { title: "Delete the key", text: "The key is deleted with everything in it.", danger: true },
};

const sent = (kind, value) => (kind === "id" && value !== "$" ? toPosition(value) ?? value : value);

export function Action({ name, request, place, onDone, onClose, initial = {} }) {
  const about = ACTIONS[name], fields = about.fields || [];
  const [values, setValues] = useState(initial);
  const [plan, setPlan] = useState(null), [error, setError] = useState(""), [busy, setBusy] = useState(false);
  const body = { action: about.action || name, ...request, ...Object.fromEntries(fields.map(([field, , kind]) => [field, sent(kind, values[field] || "")])) };
  const text = JSON.stringify(values), missing = fields.find(([field, , , optional]) => !optional && !values[field]);
  const unfilled = fields.find(([field, , , optional]) => !optional && !initial[field]);
  useEffect(() => {
    setPlan(null);
    if (missing) { setError(""); return; }
    let gone = false;
    const timer = setTimeout(() => post("preview", body).then((one) => { if (!gone) { setPlan(one); setError(""); } }, (one) => gone || setError(one.message)), 150);
    return () => { gone = true; clearTimeout(timer); };
  }, [text]);
  const run = async () => {
    setBusy(true);
    try { await post("act", { ...body, confirm: plan.confirm }); onDone(`${about.title}: done`); } catch (one) { setError(one.message); setBusy(false); }
  };
  return html`<${Dialog} title=${`${about.title}${request.ids ? `: ${counted(request.ids.length, "entry", "entries")}` : ""}`} onClose=${onClose}>
    <p class="muted">${about.text}</p>
    <div class="stack">
      ${fields.map(([field, label, kind, optional], n) => {
        const id = n ? `action-field-${n + 1}` : "action-field", first = unfilled && unfilled[0] === field ? "" : undefined;
        const change = (e) => setValues((old) => ({ ...old, [field]: e.target.value }));
        return html`<div class="row" key=${field}><label for=${id}>${label}${optional ? " (optional)" : ""}</label>${kind === "lines"
          ? html`<textarea id=${id} class="mono grow" rows="6" data-first=${first} value=${values[field] || ""} onInput=${change} spellcheck=${false} placeholder=${"customer=42\ntotal=99.90"}></textarea>`
          : html`<input id=${id} class="mono grow" data-first=${first} value=${values[field] || ""} onInput=${change} autocomplete="off" />`}</div>`;
      })}
      <${Problem} text=${error} />
      ${plan ? html`<div><h3>Runs exactly ${plan.count === 1 ? "this command" : `these ${plan.count} commands`}</h3><pre class="commands" tabindex="0">${plan.commands.join("\n")}${plan.count > plan.commands.length ? `\n… and ${plan.count - plan.commands.length} more` : ""}</pre></div>` : null}
      ${place.write ? null : html`<p class="note warn">The inspector is read-only. Start it with <code>--write</code> to run this, or copy the commands.</p>`}
      <${Confirm} text=${about.title} danger=${about.danger} disabled=${!plan || !place.write || busy} onRun=${run} first=${!unfilled} />
    </div><//>`;
}
