// One event of a record: a line that unfolds, and why something was refused.

import { html, useState } from "../vendor/preact.js";
import { ofSession, send } from "../api.js";
import { Decision, Failure, Raw, Time } from "../parts.js";
import { bytes, number, seconds, words } from "../format.js";

/** The address of a request to the outside. */
const host = ({ host: name, port, path }) => (name ? `${name}${port ? `:${port}` : ""}${path ?? ""}` : null);

/** What an event is about, in a line. */
export function subject({ args, error, result }) {
  const line = args.argv ?? args.words;
  const text = line ? words(line)
    : host(args) ?? args.path ?? args.ref ?? args.source ?? args.command ?? args.permission_level ?? args.name ?? args.tool ?? error;
  if (text != null) return String(text);
  if (result?.exit_code !== undefined) return result.exit_code === null ? "ended" : `exit ${result.exit_code}`;
  return result ? JSON.stringify(result) : "";
}

const LAYERS = {
  parser: "Policy", mount: "Mounts", landlock: "Landlock", seccomp: "System calls", network: "Network",
};

/** What would be decided about the same request now, and what to do instead. */
function Why({ event }) {
  const [answer, setAnswer] = useState(null);
  const [error, setError] = useState(null);
  const asked = Array.isArray(event.args.argv) ? { argv: event.args.argv }
    : event.args.path ? { path: event.args.path } : null;
  const explain = () => send("POST", "/api/policies/explain", { session: event.session_id, ...asked })
    .then(setAnswer, setError);
  const level = ofSession(event.session_id, "level").replace("/api/", "#/");
  return html`<div class="why"><p><${Raw} text=${event.error ?? "It was refused."} /></p>
    ${asked && !answer && html`<button onClick=${explain}>Why was this refused?</button>`}
    ${event.operation.startsWith("egress.") && html`<a href=${level}>Allow or deny it: Level and policy</a>`}
    ${error && html`<${Failure} error=${error} />`}
    ${answer && html`<dl role="status">${answer.layers.map((layer) => html`<dt>${LAYERS[layer.layer] ?? layer.layer}</dt>
      <dd><${Raw} text=${layer.message} /><div class="remedy">→ <${Raw} text=${layer.remedy} /></div></dd>`)}
      ${!answer.layers.length && html`<dt>Now</dt><dd>It would be allowed.</dd>`}</dl>`}</div>`;
}

const UNITS = [
  [/_us$/, (value) => seconds(value / 1e6)], [/_ms$/, (value) => seconds(value / 1e3)],
  [/bytes$|_rss$/, bytes], [/./, number],
];

/** A member's value as text; a number has the unit that its name says. */
function shown(name, value) {
  if (typeof value === "number") return UNITS.find(([ending]) => ending.test(name))[1](value);
  if (Array.isArray(value) && value.every((each) => typeof each === "string")) {
    return name === "argv" ? words(value) : value.join(", ");
  }
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

const isGiven = (value) => value != null && value !== false && value.length !== 0;

const Members = ({ title, of }) => {
  const given = Object.entries(of ?? {}).filter(([, value]) => isGiven(value));
  return given.length > 0 && html`<h3>${title}</h3><dl>${given.map(([name, value]) => html`
    <dt>${name.replaceAll("_", " ")}</dt><dd class="mono"><${Raw} text=${shown(name, value)} /></dd>`)}</dl>`;
};

function Unfolded({ event }) {
  return html`<div>${event.decision === "deny" && html`<${Why} event=${event} />`}
    <div class="members">
      <div><${Members} title="Asked for" of=${event.args} /></div>
      <div><${Members} title="Result" of=${event.result} />
        <${Members} title="Record" of=${{
          actor: event.actor, rule: event.rule, tokens: event.tokens_used, source: event.source, level: event.permission_level,
          number: event.seq, time: event.time, hash: event.hash,
        }} /></div></div>
    ${event.error && event.decision !== "deny" && html`<pre><${Raw} text=${event.error} /></pre>`}</div>`;
}

/** A line of a timeline. `about` is what an end belongs to; `named` adds the session's id; `open` unfolds it. */
export function Event({ event, named, about, open }) {
  const [unfolded, setUnfolded] = useState(Boolean(open));
  const kind = event.decision ?? (event.error ? "deny" : "");
  return html`<li class="event ${kind}" id=${open ? "event" : undefined}>
  <details open=${unfolded} onToggle=${(toggled) => setUnfolded(toggled.target.open)}>
    <summary><${Time} at=${event.time} /> <span class="operation">${event.operation}</span>
      <span class="verdict"><${Decision} decision=${event.decision} /></span>
      <span class="mono subject">${named && event.session_id ? html`<${Raw} text=${event.session_id} /> ` : ""}<${Raw} text=${subject(event)} />
        ${about && html` <span class="hint"><${Raw} text=${about} /></span>`}
        ${event.rule && html` <code class="rule">${event.rule}</code>`}</span>
      <span class="num">${event.duration_ms == null ? "" : seconds(event.duration_ms / 1000)}</span></summary>
    ${unfolded && html`<${Unfolded} event=${event} />`}
  </details></li>`;
}
