// A session's commands with their live output, and the processes of its sandbox.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { get, ofSession, send, streamed } from "../api.js";
import { Badge, Empty, Failure, Loading, Raw, Time, useLoaded } from "../parts.js";
import { bytes, seconds, words } from "../format.js";
import { ProcessTree } from "./process_tree.js";

// The page keeps the end of a long output.
const MOST_PIECES = 2000;
const MOST_OUTPUT = 200_000;
const SIGNALS = ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "STOP", "CONT", "KILL"];

/** How a command ended, as a badge and words. */
function End({ exit }) {
  if (!exit) return html`<${Badge} kind="good">running<//>`;
  const { exit_code: code, signal, reason, timed_out: timedOut, leftover_killed: left } = exit;
  const more = [signal && `signal ${signal}`, timedOut && "timed out", reason, left && `${left} left over, killed`].filter(Boolean);
  return html`<${Badge} kind=${code === 0 ? "" : "bad"}>${code == null ? "ended" : `exit ${code}`}<//> <span class="hint">${more.join(", ")}</span>`;
}

/** `pieces` without the oldest that are too many. */
export function lately(pieces) {
  let from = Math.max(0, pieces.length - MOST_PIECES);
  let size = pieces.slice(from).reduce((sum, piece) => sum + piece.text.length, 0);
  while (size > MOST_OUTPUT && from < pieces.length - 1) size -= pieces[from++].text.length;
  return pieces.slice(from);
}

/** `{pieces, over, error}` of a command's output, from its beginning on, as it comes. */
function useOutput(session, command) {
  const [state, setState] = useState({ pieces: [] });
  useEffect(() => {
    const stop = new AbortController();
    setState({ pieces: [] });
    read(session, command, stop.signal, (piece) => setState((now) => ({ ...now, pieces: lately([...now.pieces, piece]) })))
      .then(() => setState((now) => ({ ...now, over: true })),
        (error) => !stop.signal.aborted && setState((now) => ({ ...now, error })));
    return () => stop.abort();
  }, [session, command]);
  return state;
}

async function read(session, command, signal, onPiece) {
  for await (const { name, data } of streamed(ofSession(session, "processes", command), signal)) {
    if (data?.cut) onPiece({ name: "cut", text: `\n[${bytes(data.cut)} were not kept]\n` });
    if (name === "stdout" || name === "stderr") onPiece({ name, text: data.text });
    if (name === "error") throw new Error(data.detail);
  }
}

function Output({ session, command }) {
  const { pieces, over, error } = useOutput(session, command.command_id);
  const box = useRef(null);
  const [following, follow] = useState(true);
  useEffect(() => { if (following && box.current) box.current.scrollTop = box.current.scrollHeight; }, [pieces, following]);
  const scrolled = ({ target }) => follow(target.scrollTop + target.clientHeight > target.scrollHeight - 20);
  return html`<div class="output-head hint"><span role="status">${over ? "the end of the output" : "as it comes"}</span>
      ${!following && html`<button class="plain link" onClick=${() => follow(true)}>Follow the end</button>`}</div>
    ${error && html`<${Failure} error=${error} />`}
    <pre ref=${box} class="output" tabindex="0" aria-label="output" onScroll=${scrolled}>${pieces.length
      ? pieces.map(({ name, text }, at) => html`<span key=${at} class=${name}><${Raw} text=${text} /></span>`)
      : over ? "It printed nothing." : "No output yet."}</pre>`;
}

function Signals({ session, command, onFailed }) {
  const [signal, setSignal] = useState("TERM");
  const go = () => send("POST", ofSession(session, "processes", command.command_id, "signal"), { signal }).catch(onFailed);
  return html`<span class="joined"><select aria-label="Signal" value=${signal} onChange=${(event) => setSignal(event.target.value)}>
    ${SIGNALS.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select>
    <button class="danger" onClick=${go}>Send</button></span>`;
}

function Command({ session, command, open, onOpen, onFailed }) {
  const { exit } = command;
  return html`<li class="command"><div class="command-row">
    <button class="plain words" aria-expanded=${open} onClick=${onOpen}><span class="icon" aria-hidden="true">▸</span>
      <code><${Raw} text=${words(command.argv)} /></code></button>
    <span>${command.background && html`<${Badge}>background<//>`} <${End} exit=${exit} /></span>
    <span class="hint"><${Time} at=${command.started_at} />${exit && html`, took ${seconds(exit.duration_ms / 1000)}, ${bytes(exit.output_bytes)} printed`}</span>
    ${!exit && html`<${Signals} session=${session} command=${command} onFailed=${onFailed} />`}</div>
    ${open && html`<${Output} session=${session} command=${command} />`}</li>`;
}

export function Processes({ session, query }) {
  const running = session.commands.map((command) => `${command.command_id}${command.status}`).join();
  const [list, error, reload] = useLoaded(() => get(ofSession(session.id, "processes")), [session.id, running]);
  const [open, setOpen] = useState(query.get("command"));
  const [failed, setFailed] = useState(null);
  return html`<h2>Processes of the sandbox</h2><${ProcessTree} session=${session} />
    <h2>Commands</h2>
    ${(error || failed) && html`<${Failure} error=${error ?? failed} again=${error && reload} />`}
    ${!list ? !error && html`<${Loading} what="commands" />`
      : !list.items.length ? html`<${Empty}>No command was run.<//>`
      : html`<ol class="commands card">${[...list.items].reverse().map((command) => html`<${Command} key=${command.command_id}
          session=${session.id} command=${command} open=${open === command.command_id} onFailed=${setFailed}
          onOpen=${() => setOpen(open === command.command_id ? null : command.command_id)} />`)}</ol>`}`;
}
