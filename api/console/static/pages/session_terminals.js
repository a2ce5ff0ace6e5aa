// A session's terminals: live, as recordings, and as transcripts.

import { html, useState } from "../vendor/preact.js";
import { credential, get, ofSession, request, send } from "../api.js";
import { Badge, Confirm, Empty, Failure, Loading, Raw, Time, useLoaded } from "../parts.js";
import { bytes, seconds } from "../format.js";
import { keptName } from "./kept_shells.js";
import { LiveTerminal } from "./live_terminal.js";
import { Replay } from "./replay.js";

const STATUS = { ready: "good", busy: "warn", spawning: "warn", timed_out: "bad" };

function Transcript({ session, terminal }) {
  const path = ofSession(session.id, "ptys", terminal.id, "transcript");
  const [text, error] = useLoaded(async () => (await request("GET", path)).text(), [path, terminal.interaction_count, terminal.status]);
  if (error) return html`<${Failure} error=${error} />`;
  if (text == null) return html`<${Loading} what="the transcript" />`;
  return html`<pre tabindex="0" aria-label="transcript">${text ? html`<${Raw} text=${text} />` : "Nothing was said."}</pre>`;
}

/** The views that a terminal has, as `[name, title]`. */
function views(terminal, own) {
  const found = [];
  if (!terminal.ended_at && !own) found.push(["live", "Watch"]);
  if (terminal.ended_at && terminal.evidence?.recording_hash && !(own && terminal.kind === "shell")) found.push(["replay", "Replay"]);
  if (terminal.kind !== "shell") found.push(["transcript", "Transcript"]);
  return found;
}

function Facts({ terminal }) {
  const { opened_at: from, ended_at: to, evidence } = terminal;
  return html`<p class="facts hint"><span>opened <${Time} at=${from} /></span>
    ${to && html`<span>ended <${Time} at=${to} />: <b>${terminal.reason}</b>${terminal.exit_code != null && `, exit ${terminal.exit_code}`}</span>
      <span>took <b>${seconds((Date.parse(to) - Date.parse(from)) / 1000)}</b></span>`}
    ${terminal.max_interactions > 0 && html`<span><b>${terminal.interaction_count}</b> of ${terminal.max_interactions} lines</span>`}
    ${!to && terminal.prompt && html`<span>prompt <code><${Raw} text=${terminal.prompt} /></code></span>`}
    ${evidence?.recording_bytes > 0 && html`<span>${bytes(evidence.recording_bytes)} recorded${evidence.recording_truncated ? ", incomplete" : ""}</span>`}
    <code class="hint">${terminal.id}</code></p>`;
}

/** The page in which a shell is used. */
function use({ id }, terminal) {
  const name = keptName(terminal);
  const page = name === null ? `shell?${new URLSearchParams({ pty: terminal.id })}` : `shells?${new URLSearchParams({ name })}`;
  return `#/sessions/${encodeURIComponent(id)}/${page}`;
}

function Terminal({ session, terminal, view, watched, onView, onEnd }) {
  const own = credential().session;
  const known = views(terminal, own);
  // A terminal that was watched to its end stays shown.
  const shown = known.some(([name]) => name === view) || watched ? view : view && known[0]?.[0];
  return html`<section class="card terminal-card" aria-label=${`${terminal.tool} ${terminal.id}`}><div class="file-head"><div>
      <h2><${Raw} text=${terminal.tool} /> <${Badge} kind=${STATUS[terminal.status]}>${terminal.status}<//></h2>
      <p><code><${Raw} text=${terminal.startup_command} /></code></p></div>
      <p class="actions">${known.map(([name, title]) => html`<button key=${name} aria-pressed=${shown === name}
          onClick=${() => onView(shown === name ? null : name)}>${title}</button>`)}
        ${terminal.kind === "shell" && !terminal.ended_at && !own && html`<a href=${use(session, terminal)}>Use</a>`}
        ${!terminal.ended_at && html`<button class="danger" onClick=${onEnd}>End</button>`}</p></div>
    <${Facts} terminal=${terminal} />
    ${shown === "live" && html`<${LiveTerminal} session=${session.id} pty=${terminal.id} />`}
    ${shown === "replay" && html`<${Replay} session=${session} pty=${terminal.id} />`}
    ${shown === "transcript" && html`<${Transcript} session=${session} terminal=${terminal} />`}</section>`;
}

export function Terminals({ session, query }) {
  const [list, error, reload] = useLoaded(() => get(ofSession(session.id, "ptys")), [session.id, session.telemetry.events_emitted]);
  const [shown, show] = useState({ pty: query.get("pty"), view: query.get("view") ?? "live" });
  const [ending, setEnding] = useState(null);
  const [failed, setFailed] = useState(null);
  const look = (terminal, view) => {
    const pty = terminal.id;
    show({ pty, view, watched: view === "live" });
    const search = view ? `?${new URLSearchParams({ pty, view })}` : "";
    history.replaceState(null, "", `#/sessions/${encodeURIComponent(session.id)}/terminals${search}`);
  };
  const end = () => { setEnding(null); send("DELETE", ofSession(session.id, "ptys", ending.id)).then(reload, setFailed); };
  if (!list) return error ? html`<${Failure} error=${error} again=${reload} />` : html`<${Loading} what="terminals" />`;
  if (!list.items.length) {
    return html`<${Empty}>No terminal was opened. Tools: ${session.tools?.join(", ") ?? "any that the level permits"}; see <a
      href="#/sessions/${encodeURIComponent(session.id)}/level">Level and policy</a>.<//>`;
  }
  return html`${failed && html`<${Failure} error=${failed} />`}
    ${[...list.items].reverse().map((terminal) => html`<${Terminal} key=${terminal.id} session=${session} terminal=${terminal}
      view=${shown.pty === terminal.id ? shown.view : null} watched=${shown.pty === terminal.id && shown.watched} onView=${(view) => look(terminal, view)} onEnd=${() => setEnding(terminal)} />`)}
    ${ending && html`<${Confirm} title="End ${ending.tool}?" yes="End" onYes=${end} onNo=${() => setEnding(null)}>
      <p>Its program is ended. What was recorded stays.</p><//>`}`;
}
