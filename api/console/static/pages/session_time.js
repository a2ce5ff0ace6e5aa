// When a session ends by itself, and the dialog that changes it.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { get, ofSession, send } from "../api.js";
import { Failure, Loading, Time, useLoaded } from "../parts.js";

const MINUTE = 60;
const HOURS = [1, 4, 24];

/** The deadlines that a session has, in a line of facts. */
export const Ends = ({ session: { deadlines, idle_action: action } }) => html`
  ${deadlines.idle_at && html`<span>${action === "suspend" ? "suspended" : "ends"} when idle <b><${Time} at=${deadlines.idle_at} /></b></span>`}
  ${deadlines.wall_at && html`<span>ends in any case <b><${Time} at=${deadlines.wall_at} /></b></span>`}
  ${deadlines.budget_at && html`<span>its budget of time ends <b><${Time} at=${deadlines.budget_at} /></b></span>`}`;

const minutes = (seconds) => (seconds == null ? "" : String(Math.round((seconds * 100) / MINUTE) / 100));

/** The settings that differ from what they are. */
export function changes(given, settings) {
  const found = {};
  for (const name of ["idle_timeout", "wall_timeout"]) {
    if (given[name] !== "" && given[name] !== minutes(settings[name])) found[name] = Math.round(Number(given[name]) * MINUTE);
  }
  return found;
}

function Form({ session, settings, onDone, onClose }) {
  const [given, setGiven] = useState({ idle_timeout: minutes(settings.idle_timeout), wall_timeout: minutes(settings.wall_timeout) });
  const [failed, setFailed] = useState(null);
  const [busy, setBusy] = useState(false);
  async function put(wanted) {
    setBusy(true);
    setFailed(null);
    try {
      await send("PUT", ofSession(session.id, "settings"), { settings: wanted });
      onDone();
    } catch (error) { setFailed(error); setBusy(false); }
  }
  const wanted = changes(given, settings);
  const ends = wanted.wall_timeout && Date.parse(session.created_at) + wanted.wall_timeout * 1000 <= Date.now();
  const submit = (event) => { event.preventDefault(); put(wanted); };
  const input = (name, title, placeholder) => html`<label>${title} <input type="number" min="0" step="any" value=${given[name]} placeholder=${placeholder}
    onInput=${(event) => setGiven({ ...given, [name]: event.target.value })} /></label>`;
  return html`<form onSubmit=${submit}><fieldset class="bare" disabled=${busy}>
    <p class="facts hint"><${Ends} session=${session} /></p>
    <p class="actions" role="group" aria-label="keep it at least">Keep it at least ${HOURS.map((hours) => html`
      <button type="button" key=${hours} onClick=${() => put({ keep_alive: hours * 60 * MINUTE })}>${hours} h from now</button>`)}</p>
    <div class="fields">${input("idle_timeout", `${session.idle_action === "suspend" ? "Suspended" : "Ends"} when idle for, minutes`)}
      ${input("wall_timeout", "Ends after its creation, minutes", "never")}</div>
    ${ends && html`<p class="rule" role="alert">The session is older than that: it would end at once, with everything that runs in it.</p>`}
    ${failed && html`<${Failure} error=${failed} />`}
    <p class="actions"><button type="button" onClick=${onClose}>Cancel</button>
      <button class=${ends ? "danger" : "primary"} disabled=${!Object.keys(wanted).length}>${ends ? "End the session" : "Change"}</button></p></fieldset></form>`;
}

/** Asks for other time-outs; `onChanged` is called after a change. */
export function TimeDialog({ session, onChanged, onClose }) {
  const [settings, error, reload] = useLoaded(() => get(ofSession(session.id, "settings")), [session.id]);
  const dialog = useRef(null);
  useEffect(() => dialog.current.showModal(), []);
  return html`<dialog ref=${dialog} class="wide" aria-label="Time of ${session.id}" onCancel=${onClose}><h2>Time</h2>
    ${settings ? html`<${Form} session=${session} settings=${settings} onClose=${onClose} onDone=${() => { onChanged(); onClose(); }} />`
      : html`${error ? html`<${Failure} error=${error} again=${reload} />` : html`<${Loading} what="settings" />`}
        <p class="actions"><button onClick=${onClose}>Cancel</button></p>`}</dialog>`;
}
