// The interactive tools of a session, and what was said in them.

import { html, useState } from "../vendor/preact.js";
import { get, ofSession, request, send } from "../api.js";
import { Badge, Empty, Failure, Loading, Raw, Time, useLoaded } from "../parts.js";

const STATUS = { ready: "good", busy: "warn", spawning: "warn", timed_out: "bad" };

function Transcript({ session, terminal }) {
  const path = ofSession(session, "ptys", terminal.id, "transcript");
  const [text, error] = useLoaded(async () => (await request("GET", path)).text(), [path, terminal.interaction_count, terminal.status]);
  if (error) return html`<${Failure} error=${error} />`;
  return text == null ? html`<${Loading} what="the transcript" />` : html`<pre tabindex="0" aria-label="transcript"><${Raw} text=${text} /></pre>`;
}

function Terminal({ session, terminal, onEnd }) {
  const [open, setOpen] = useState(false);
  return html`<section class="card"><h2><${Raw} text=${terminal.tool} /> <${Badge} kind=${STATUS[terminal.status]}>${terminal.status}<//></h2>
    <dl><dt>program</dt><dd><code><${Raw} text=${terminal.startup_command} /></code></dd>
      <dt>opened</dt><dd><${Time} at=${terminal.opened_at} /></dd>
      <dt>lines</dt><dd>${terminal.interaction_count} of ${terminal.max_interactions}</dd>
      ${terminal.prompt && html`<dt>prompt</dt><dd><code><${Raw} text=${terminal.prompt} /></code></dd>`}
      ${terminal.ended_at && html`<dt>ended</dt><dd><${Time} at=${terminal.ended_at} />: ${terminal.reason}</dd>`}</dl>
    <p class="actions"><button aria-expanded=${open} onClick=${() => setOpen(!open)}>Transcript</button>
      ${!terminal.ended_at && html`<button class="danger" onClick=${onEnd}>End</button>`}</p>
    ${open && html`<${Transcript} session=${session} terminal=${terminal} />`}</section>`;
}

export function Terminals({ session }) {
  const [list, error, reload] = useLoaded(() => get(ofSession(session.id, "ptys")), [session.id, session.telemetry.events_emitted]);
  const [failed, setFailed] = useState(null);
  const end = (terminal) => send("DELETE", ofSession(session.id, "ptys", terminal.id)).then(reload, setFailed);
  if (!list) return error ? html`<${Failure} error=${error} again=${reload} />` : html`<${Loading} what="terminals" />`;
  if (!list.items.length) return html`<${Empty}>No tool was opened. Tools: ${session.tools?.join(", ") ?? "any that the level permits"}.<//>`;
  return html`${failed && html`<${Failure} error=${failed} />`}
    ${list.items.map((terminal) => html`<${Terminal} key=${terminal.id} session=${session.id} terminal=${terminal} onEnd=${() => end(terminal)} />`)}`;
}
