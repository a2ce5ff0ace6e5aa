// A session's record as a timeline.

import { html, useState } from "../vendor/preact.js";
import { get, ofSession, send } from "../api.js";
import { Badge, Choice, DECISIONS, Decision, Empty, Failure, Raw, Time } from "../parts.js";
import { seconds, words } from "../format.js";

/** What an event is about, in a line. */
export function subject({ args, error, result }) {
  const text = args.argv ? words(args.argv)
    : args.path ?? args.source ?? args.command ?? (args.host ? `${args.host}:${args.port}` : null)
    ?? args.permission_level ?? args.name ?? args.tool ?? error;
  if (text != null) return String(text);
  if (result?.exit_code !== undefined) return result.exit_code === null ? "ended" : `exit ${result.exit_code}`;
  return result ? JSON.stringify(result) : "";
}

function Why({ event }) {
  const [answer, setAnswer] = useState(null);
  const [error, setError] = useState(null);
  const asked = Array.isArray(event.args.argv) ? { argv: event.args.argv }
    : event.args.path ? { path: event.args.path } : null;
  const explain = () => send("POST", "/api/policies/explain", { session: event.session_id, ...asked })
    .then(setAnswer, setError);
  return html`<p><${Raw} text=${event.error ?? "It was refused."} /></p>
    ${asked && !answer && html`<button onClick=${explain}>Why was this refused?</button>`}
    ${error && html`<${Failure} error=${error} />`}
    ${answer && html`<dl>${answer.layers.map((layer) => html`<dt>${layer.layer}</dt>
      <dd><${Raw} text=${layer.message} /> <em>${layer.remedy}</em></dd>`)}
      ${!answer.layers.length && html`<dt>now</dt><dd>It would be allowed.</dd>`}</dl>`}`;
}

export const Event = ({ event, named }) => html`<li><details>
  <summary><${Time} at=${event.time} /> <span>${event.operation}</span>
    <span><${Decision} decision=${event.decision} /></span>
    <span class="mono">${named && event.session_id ? html`<${Raw} text=${event.session_id} /> ` : ""}<${Raw} text=${subject(event)} /></span>
    <span class="num">${event.duration_ms == null ? "" : seconds(event.duration_ms / 1000)}</span></summary>
  <div>${event.decision === "deny" && html`<${Why} event=${event} />`}
    <dl><dt>actor</dt><dd>${event.actor}</dd>${event.rule && html`<dt>rule</dt><dd>${event.rule}</dd>`}
      <dt>number</dt><dd>${event.seq}</dd><dt>hash</dt><dd class="mono">${event.hash}</dd></dl>
    <pre><${Raw} text=${JSON.stringify({ args: event.args, result: event.result, error: event.error }, null, 2)} /></pre></div>
</details></li>`;

function Verify({ id }) {
  const [verdict, setVerdict] = useState(null);
  const [error, setError] = useState(null);
  const verify = () => get(ofSession(id, "audit", "verify")).then(setVerdict, setError);
  return html`<button onClick=${verify}>Verify the chain</button>
    ${verdict && html`<span role="status"><${Badge} kind=${verdict.ok ? "good" : "bad"}>${verdict.ok ? "intact" : "differs"}<//>
      ${verdict.ok ? ` ${verdict.seq} events` : ` after event ${verdict.seq}: ${verdict.reason}`}</span>`}
    ${error && html`<${Failure} error=${error} />`}`;
}

export function Activity({ found, query }) {
  const [text, setText] = useState(query.get("text") ?? "");
  const [decision, setDecision] = useState("");
  const [operation, setOperation] = useState("");
  const { events, session } = found;
  const operations = [...new Set(events.map((event) => event.operation))].sort();
  const wanted = text.toLowerCase();
  const shown = events.filter((event) => (!decision || event.decision === decision)
    && (!operation || event.operation === operation)
    && (!wanted || JSON.stringify(event).toLowerCase().includes(wanted)));
  return html`<form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <label>Text <input type="search" value=${text} onInput=${(event) => setText(event.target.value)} /></label>
      <${Choice} label="Decision" value=${decision} among=${DECISIONS} onChoose=${setDecision} />
      <${Choice} label="Operation" value=${operation} among=${["", ...operations]} onChoose=${setOperation} />
    </form>
    <p class="actions"><${Verify} id=${session.id} />
      <a href="#/audit?session=${encodeURIComponent(session.id)}">Search the whole record</a></p>
    ${shown.length ? html`<ol class="timeline">${shown.map((event) => html`<${Event} key=${event.seq} event=${event} />`)}</ol>`
      : html`<${Empty}>${events.length ? "Nothing matches." : "Nothing is on record yet."}<//>`}
    ${events.length > 0 && events.at(-1).seq > 1 && html`<p><button onClick=${found.older}>Show earlier events</button></p>`}`;
}
