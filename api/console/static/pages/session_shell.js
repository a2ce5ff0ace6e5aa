// Shells in a session's sandbox: several, each of which stays open when the page is left.

import { html, useState } from "../vendor/preact.js";
import { credential, get, ofSession, send } from "../api.js";
import { Empty, Failure, Loading, useLoaded } from "../parts.js";
import { A_SHELL, AnyCommand } from "./any_command.js";
import { keptName } from "./kept_shells.js";
import { LiveTerminal } from "./live_terminal.js";

const address = (session, pty) => `#/sessions/${encodeURIComponent(session.id)}/shell${pty ? `?pty=${encodeURIComponent(pty)}` : ""}`;

function Shells({ session, query }) {
  const [list, error, reload] = useLoaded(() => get(ofSession(session.id, "ptys")), [session.id, session.telemetry.events_emitted]);
  // `{pty, key}`: a new shell has no id yet, and keeps its key when it gets one.
  const [shown, show] = useState(query.get("pty") ? { pty: query.get("pty"), key: query.get("pty") } : null);
  const [failed, setFailed] = useState(null);
  if (!list) return error ? html`<${Failure} error=${error} again=${reload} />` : html`<${Loading} what="shells" />`;
  const open = list.items.filter((terminal) => terminal.kind === "shell" && !terminal.ended_at && keptName(terminal) === null);
  const now = shown ?? (open.length ? { pty: open.at(-1).id, key: open.at(-1).id } : null);
  const choose = (next) => { show(next); history.replaceState(null, "", address(session, next?.pty)); };
  const opened = (id) => { if (now.pty !== id) choose({ ...now, pty: id }); reload(); };
  const end = () => send("DELETE", ofSession(session.id, "ptys", now.pty)).then(() => choose(null), setFailed).then(reload);
  return html`<div class="shells" role="group" aria-label="shells">
      ${open.map((terminal, at) => html`<button key=${terminal.id} class="chip" aria-pressed=${now?.pty === terminal.id}
        onClick=${() => choose({ pty: terminal.id, key: terminal.id })}>Shell ${at + 1}</button>`)}
      <button class=${open.length ? "" : "primary"} onClick=${() => choose({ pty: null, key: Date.now() })}>${open.length ? "Another shell" : "Open a shell"}</button>
      ${now && html`<span class="hint">Ctrl+F6 leaves the terminal. A shell stays open when the page is left.</span>`}</div>
    ${failed && html`<${Failure} error=${failed} />`}
    ${now ? html`<${LiveTerminal} key=${now.key} session=${session.id} pty=${now.pty} writable onOpened=${opened}>
        <span class="space"></span>${now.pty && html`<button class="danger" onClick=${end}>End</button>`}<//>`
      : html`<${Empty}>No shell is open. What is typed and shown in one is recorded.<//>`}`;
}

export function Shell({ session, query }) {
  if (credential().session) return html`<${Empty}>A shell is for people with an API key: sign in with one.<//>`;
  if (session.status !== "active") return html`<${Empty}>A shell needs an active session; this one is ${session.status}.<//>`;
  return html`<${AnyCommand} session=${session} ...${A_SHELL}><${Shells} session=${session} query=${query} /><//>`;
}
