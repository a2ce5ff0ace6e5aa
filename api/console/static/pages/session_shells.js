// Shells that keep their state: a list of them, a place to type, and what came of each command.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { credential } from "../api.js";
import { Badge, Confirm, Empty, Failure, Loading, Raw } from "../parts.js";
import { bytes, seconds } from "../format.js";
import { A_SHELL, AnyCommand } from "./any_command.js";
import { KeptShells } from "./kept_shells.js";

const FIRST = "default";
const SECONDS = 60;
const MOST_SECONDS = 3600;
const STATES = { matched: "runs on", waiting: "waits for input", timed_out: "timed out", syntax_error: "not run: wrong syntax" };

const home = (session) => `#/sessions/${encodeURIComponent(session)}`;

/** What came of a command: its exit code, or why there is none. */
function Outcome({ entry: { answer, failed } }) {
  if (failed) return html`<${Badge} kind="bad">not answered<//>`;
  if (!answer) return html`<${Badge}>running<//>`;
  if (answer.ended) return html`<${Badge} kind="warn">the shell has ended: ${answer.ended}<//>`;
  if (answer.status === "finished") return html`<${Badge} kind=${answer.exit_code ? "bad" : "good"}>exit ${answer.exit_code}<//>`;
  return html`<${Badge} kind="warn">${STATES[answer.status]}<//>`;
}

function Entry({ entry }) {
  const { answer, failed, input, text, cwd } = entry;
  const label = `${input ? "input" : "command"} ${entry.number}`;
  return html`<section class="shell-entry" aria-label=${label}>
    <div class="head"><code class="words"><span class="hint">${input ? "›" : html`<${Raw} text=${cwd} /> $`}</span> <${Raw} text=${text || "(only waited)"} /></code>
      <${Outcome} entry=${entry} />${answer && html`<span class="hint">${seconds(answer.duration_ms / 1000)}</span>`}</div>
    ${answer?.error && html`<p class="rule"><${Raw} text=${answer.error} /></p>`}
    ${answer?.output && html`<pre tabindex="0" role="group" aria-label="output of ${label}"><${Raw} text=${answer.output.replaceAll("\r\n", "\n")} /></pre>`}
    ${answer?.cut_bytes > 0 && html`<p class="hint">${bytes(answer.cut_bytes)} in the middle were left out.</p>`}
    ${failed && html`<${Failure} error=${failed} />`}</section>`;
}

/** Commands that were typed, called back by the arrow keys. */
function useHistory(entries, setText) {
  const back = useRef(0);
  const typed = entries.filter(({ input }) => !input).map(({ text }) => text);
  const show = (steps) => {
    back.current = Math.min(Math.max(back.current + steps, 0), typed.length);
    setText(back.current ? typed.at(-back.current) : "");
  };
  return { show, forget: () => { back.current = 0; } };
}

function Prompt({ shells, shell, entries, fixed }) {
  const [text, setText] = useState("");
  const [limit, setLimit] = useState(String(SECONDS));
  const history = useHistory(entries, setText);
  const waits = shells.asking.has(shell.name);
  const input = shell.running && !waits;
  const closed = fixed || waits || !(Number(limit) > 0);
  const ask = (sent) => { history.forget(); setText(""); shells.ask(shell.name, sent, Number(limit)); };
  const press = (event) => {
    if (event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      if (!closed && (input || text.trim())) ask(text);
    } else if (["ArrowUp", "ArrowDown"].includes(event.key) && !text.includes("\n")) {
      event.preventDefault();
      history.show(event.key === "ArrowUp" ? 1 : -1);
    }
  };
  return html`<section class="card cell-editor" aria-label="prompt"><label>${input ? "Input for the program that runs" : "Command"}
      <textarea class="mono" rows=${Math.min(8, text.split("\n").length)} spellcheck=${false} value=${text} disabled=${fixed} onKeyDown=${press}
        onInput=${(event) => { history.forget(); setText(event.target.value); }}></textarea></label>
    <div class="actions"><label>Time, seconds <input type="number" min="0" max=${MOST_SECONDS} step="any" value=${limit} onInput=${(event) => setLimit(event.target.value)} /></label>
      ${input ? html`<button class="primary" disabled=${closed} onClick=${() => ask(text)}>Send</button><button disabled=${closed} onClick=${() => ask("")}>Only wait</button>`
        : html`<button class="primary" disabled=${closed || !text.trim()} onClick=${() => ask(text)}>Run</button>`}
      <button disabled=${fixed || !shell.running && !waits} onClick=${() => shells.interrupt(shell.name)}>Interrupt</button></div>
    <p class="hint">Enter sends, Shift+Enter begins a new line, the arrow keys call earlier commands back. When the time is over, the command is interrupted, and so it is when you leave this page.</p></section>`;
}

function OneShell({ session, shells, shell, entries, fixed, onEnd }) {
  return html`<div class="head"><p class="facts hint"><span>directory <b class="mono"><${Raw} text=${shell.cwd} /></b></span>
      <span>${shell.running ? "a command runs" : "waits for a command"}</span></p>
      <p class="actions">${!credential().session && html`<a href="${home(session.id)}/terminals?${new URLSearchParams({ pty: shell.pty, view: "live" })}">Watch its terminal</a>`}
        <button class="danger" onClick=${onEnd}>End</button></p></div>
    <${Prompt} key=${shell.name} shells=${shells} shell=${shell} entries=${entries} fixed=${fixed} />`;
}

/** Asks for the name and the directory of a new shell. */
function NewShell({ shells, workspace, onMade, onClose }) {
  const [given, setGiven] = useState({ name: shells.items.length ? "" : FIRST, cwd: "" });
  const [failed, setFailed] = useState(null);
  const set = (name) => (event) => setGiven({ ...given, [name]: event.target.value });
  const submit = (event) => {
    event.preventDefault();
    setFailed(null);
    shells.create(given.name, given.cwd).then(onMade, setFailed);
  };
  return html`<form class="card" aria-label="new shell" onSubmit=${submit}><div class="fields">
      <label>Name <input required maxlength="64" autocomplete="off" value=${given.name} onInput=${set("name")} /></label>
      <label>Directory <input autocomplete="off" placeholder=${workspace} value=${given.cwd} onInput=${set("cwd")} /></label></div>
    ${failed && html`<${Failure} error=${failed} />`}
    <p class="actions"><button class="primary">Create</button>${onClose && html`<button type="button" onClick=${onClose}>Cancel</button>`}</p></form>`;
}

function Log({ entries }) {
  const log = useRef(null);
  useEffect(() => { log.current.scrollTop = log.current.scrollHeight; }, [entries.length, entries.at(-1)?.answer]);
  return html`<div ref=${log} class="shell-log" role="log" aria-label="commands and answers" tabindex="0">${entries.length
    ? entries.map((entry) => html`<${Entry} key=${entry.number} entry=${entry} />`)
    : html`<${Empty}>Directory, variables, functions and jobs stay from command to command. Commands are on record; their answers are only kept by this page.<//>`}</div>`;
}

function Shells({ session, query }) {
  const [, draw] = useState(0);
  const [shells, setShells] = useState(null);
  const [chosen, setChosen] = useState(query.get("name"));
  const [creating, setCreating] = useState(false);
  const [ending, setEnding] = useState(null);
  useEffect(() => {
    const made = new KeptShells(session.id, () => draw((times) => times + 1));
    setShells(made);
    return () => made.close();
  }, [session.id]);
  useEffect(() => { shells?.load(); }, [shells, session.telemetry.events_emitted]);
  if (!shells?.items) return shells?.failed ? html`<${Failure} error=${shells.failed} again=${() => shells.load()} />` : html`<${Loading} what="shells" />`;
  const fixed = session.status !== "active";
  const shell = shells.shell(chosen) ?? (shells.entries.has(chosen) ? null : shells.items.at(-1));
  const name = shell?.name ?? chosen;
  const entries = shells.entries.get(name) ?? [];
  const choose = (next) => { setCreating(false); setChosen(next); history.replaceState(null, "", `${home(session.id)}/shells?${new URLSearchParams({ name: next })}`); };
  const asks = creating || (!shells.items.length && !entries.length);
  return html`<div class="shells" role="group" aria-label="shells">
      ${shells.items.map((each) => html`<button key=${each.name} class="chip" aria-pressed=${!asks && each.name === name} onClick=${() => choose(each.name)}>${each.name}${each.running && " ●"}</button>`)}
      ${!fixed && !asks && html`<button onClick=${() => setCreating(true)}>New shell</button>`}</div>
    ${shells.failed && html`<${Failure} error=${shells.failed} />`}
    ${asks ? !fixed && html`<${NewShell} shells=${shells} workspace=${session.workspace_path} onMade=${choose} onClose=${shells.items.length > 0 && (() => setCreating(false))} />` : html`
      <${Log} entries=${entries} />
      ${shell ? html`<${OneShell} session=${session} shells=${shells} shell=${shell} entries=${entries} fixed=${fixed} onEnd=${() => setEnding(name)} />`
        : html`<p class="state">The shell has ended.</p>`}`}
    ${ending && html`<${Confirm} title="End ${ending}?" yes="End" onNo=${() => setEnding(null)} onYes=${() => { setEnding(null); shells.end(ending); }}>
      <p>Everything that the shell has started is ended. Its record stays.</p><//>`}`;
}

export const NamedShells = ({ session, query }) => html`<${AnyCommand} session=${session} ...${A_SHELL}><${Shells} session=${session} query=${query} /><//>`;
