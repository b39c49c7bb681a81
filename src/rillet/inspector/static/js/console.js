// Console: commands with completion and help from the server's command table, replies as trees, history.
import { html, useState, useEffect, useMemo, useRef, useGet, post, store } from "./base.js";
import { Card, Confirm, Dialog } from "./parts.js";

export function Reply({ reply, depth = 0 }) {
  const { type, value, items, pairs } = reply;
  if (type === "error") return html`<span class="t-error">(error) ${value}</span>`;
  if (type === "null") return html`<span class="muted">(nil)</span>`;
  if (type === "integer" || type === "double" || type === "boolean") return html`<span class="t-number">(${type}) ${value}</span>`;
  if (type === "string") return reply.lines && depth === 0 ? html`<pre>${reply.lines.join("\n")}</pre>` : html`<span class="t-string">"${value}"${reply.cut ? html`<span class="muted"> … ${reply.size} bytes</span>` : null}</span>`;
  if (type === "cut") return html`<span class="muted">…</span>`;
  const all = type === "map" ? pairs : items;
  if (!all.length) return html`<span class="muted">(empty ${type})</span>`;
  return html`<details open=${depth < 3}><summary class="muted">${type}, ${reply.size}</summary><ul>
    ${all.map((one, n) => html`<li key=${n}>${type === "map" ? html`<${Reply} reply=${one[0]} depth=${depth + 1} />: <${Reply} reply=${one[1]} depth=${depth + 1} />` : html`<span class="muted">${n + 1}) </span><${Reply} reply=${one} depth=${depth + 1} />`}</li>`)}
    ${reply.size > all.length ? html`<li class="muted">and ${reply.size - all.length} more</li>` : null}</ul></details>`;
}

export default function ConsoleView({ place }) {
  const { data } = useGet("commands", {}, []);
  const commands = data ? data.commands : [];
  const [line, setLine] = useState(""), [out, setOut] = useState([]), [at, setAt] = useState(-1), [open, setOpen] = useState(false);
  const [history, setHistory] = useState(store.get("history", [])), [back, setBack] = useState(-1), [asked, setAsked] = useState(null), [typed, setTyped] = useState("");
  const box = useRef(null), input = useRef(null);
  const word = line.toLowerCase().replace(/\s+/g, " ");
  const matching = useMemo(() => (word.trim() ? commands.filter((one) => one.name.startsWith(word) || (one.name.includes(" ") && one.name.startsWith(word.trimStart()))).slice(0, 30) : []), [word, commands]);
  const current = useMemo(() => {
    const words = word.trim().split(" ");
    return commands.find((one) => one.name === words.slice(0, 2).join(" ")) || commands.find((one) => one.name === words[0]);
  }, [word, commands]);
  useEffect(() => { if (box.current) box.current.scrollTop = box.current.scrollHeight; }, [out]);
  const show = (item) => setOut((old) => [...old.slice(-99), item]);
  const run = async (text, confirm) => {
    try {
      const body = { line: text };
      if (confirm !== undefined) body.confirm = confirm;
      show({ line: text, reply: await post("console", body) });
    } catch (error) { show({ line: text, problem: error.message }); }
  };
  const submit = async (event) => {
    event.preventDefault();
    const text = line.trim();
    if (!text) return;
    const now = [text, ...history.filter((one) => one !== text)].slice(0, 200);
    setHistory(now); store.set("history", now); setLine(""); setBack(-1); setOpen(false);
    if (place.write) {
      try {
        const about = await post("console", { line: text, explain: true });
        if (about.writes) { setAsked({ line: text, command: about.command, word: about.dangerous ? about.command.split(" ")[0].toUpperCase() : "" }); setTyped(""); return; }
      } catch (error) { show({ line: text, problem: error.message }); return; }
    }
    run(text);
  };
  const choose = (one) => { setLine(one.name + " "); setOpen(false); setAt(-1); input.current.focus(); };
  const keys = (event) => {
    const listed = open && matching.length > 0;
    if (event.key === "Escape") { setOpen(false); setAt(-1); }
    else if (event.key === "Tab" && listed) { event.preventDefault(); choose(matching[Math.max(0, at)]); }
    else if (event.key === "Enter" && listed && at >= 0) { event.preventDefault(); choose(matching[at]); }
    else if (event.key === "ArrowDown" && listed && back < 0) { event.preventDefault(); setAt(Math.min(matching.length - 1, at + 1)); }
    else if (event.key === "ArrowUp" && listed && at >= 0) { event.preventDefault(); setAt(at - 1); }
    else if (event.key === "ArrowUp" && history.length) { event.preventDefault(); const n = Math.min(history.length - 1, back + 1); setBack(n); setLine(history[n]); setOpen(false); }
    else if (event.key === "ArrowDown" && back >= 0) { event.preventDefault(); const n = back - 1; setBack(n); setLine(n < 0 ? "" : history[n]); setOpen(false); }
  };
  return html`<div class="grid">
    <section class="card s8" aria-label="Console">
      <ol class="out" ref=${box} tabindex="0" style=${{ margin: 0 }} aria-live="polite" aria-label="Replies">
        ${out.length ? out.map((one, n) => html`<li key=${n}><div class="muted">${">"} ${one.line}</div><div class="tree">${one.problem ? html`<span class="t-error">${one.problem}</span>` : html`<${Reply} reply=${one.reply} />`}</div></li>`)
          : html`<li class="muted">Type a command: <code>XINFO STREAM</code>, <code>XRANGE</code>, <code>INFO memory</code>. ${place.write ? "A command that writes asks for a confirmation." : "Reads only; start with --write for more."} ↑ is the history, Tab completes.</li>`}</ol>
      <form class="prompt" onSubmit=${submit} style=${{ position: "relative" }}>
        <label class="sr" for="line">Command</label>
        <input id="line" ref=${input} value=${line} autocomplete="off" spellcheck=${false} placeholder="command" role="combobox" aria-expanded=${open && matching.length > 0} aria-controls="options" aria-autocomplete="list"
          aria-activedescendant=${at >= 0 && open ? `option-${at}` : undefined}
          onInput=${(e) => { setLine(e.target.value); setOpen(true); setAt(-1); setBack(-1); }} onKeyDown=${keys} onBlur=${() => setTimeout(() => setOpen(false), 150)} />
        <button type="submit" class="primary">Run</button>
        <ul class="options" id="options" role="listbox" aria-label="Commands" hidden=${!(open && matching.length && line && !(matching.length === 1 && matching[0].name === word.trim()))}>${matching.map((one, n) => html`<li key=${one.name} id=${`option-${n}`} role="option" aria-selected=${n === at} onMouseDown=${(e) => { e.preventDefault(); choose(one); }}>${one.name}${one.reads ? "" : html` <span class="badge warn">writes</span>`}</li>`)}</ul>
      </form>
    </section>
    <${Card} title=${current ? current.name.toUpperCase() : "Help"} id="h-help" className="s4">
      ${current ? html`<div class="stack"><p>${current.summary}</p><pre>${current.name.toUpperCase()} ${current.usage}</pre>
        <p class="muted small">${[current.group, current.since && `since ${current.since}`, current.complexity, current.flags.join(", ")].filter(Boolean).join(" · ")}</p>
        ${current.reads ? null : html`<p><span class="badge warn">not a read</span></p>`}</div>` : html`<p class="muted">${commands.length ? `${commands.length} commands. Help appears while you type.` : "Loading the command table…"}</p>`}<//>
    ${asked ? html`<${Dialog} title="This command writes" onClose=${() => setAsked(null)}><p class="muted">It runs exactly as shown:</p><pre class="commands">${asked.command}</pre>
      ${asked.word ? html`<p class="note warn">The server lists this command as dangerous.</p>
        <div class="row"><label for="typed">To run it, type ${asked.word}</label><input id="typed" class="mono" value=${typed} onInput=${(e) => setTyped(e.target.value)} autocomplete="off" spellcheck=${false} /></div>` : null}
      <${Confirm} text="Run" danger disabled=${asked.word !== "" && typed.trim().toUpperCase() !== asked.word} onRun=${() => { run(asked.line, asked.command); setAsked(null); }} /><//>` : null}
  </div>`;
}
