// The permission level above a session's runs. Runs are sent without one, so none changes it: a change ends what runs.

import { html, useState } from "../vendor/preact.js";
import { credential, ofSession, send } from "../api.js";
import { Failure } from "../parts.js";
import { ConfirmLevel, running } from "./level_change.js";

const PLACE = "paddock.levels";
const MOST_KEPT = 200;

/** What was chosen in this browser, by session, the latest last. */
function kept() {
  try { return new Map(JSON.parse(localStorage.getItem(PLACE) ?? "[]")); } catch { return new Map(); }
}

function keep(session, level) {
  const levels = kept();
  levels.delete(session);
  const entries = [...levels, [session, level]].slice(-MOST_KEPT);
  try { localStorage.setItem(PLACE, JSON.stringify(entries)); } catch { /* a browser may keep nothing */ }
}

/** Why the level can't be changed here, or nothing. */
export function fixed(session, levels) {
  if (credential().session) return "Only the session's host may change its level.";
  if (levels.length && levels.every(({ allowed, rule }) => !allowed && !rule)) return "A viewer's key only reads.";
  if (session.status !== "active") return "Only an active session's level can be changed.";
  return null;
}

/** Levels above what the key may give can't be chosen; the hint below gives the reason. */
function Hint({ session, levels, busy, reason }) {
  const above = levels.filter(({ allowed }) => !allowed).map(({ name }) => name);
  if (busy) return `Changing to ${busy}: a new sandbox starts.`;
  if (reason) return reason;
  return above.length ? `Above the max_level of your key: ${above.join(", ")}.` : "Runs keep it.";
}

/** A level is chosen, and then changed to by a button. `onChanged` is called after a change. */
export function RunLevel({ session, levels, onChanged }) {
  const [picked, setPicked] = useState(null);
  // `{to, ends}`: the change that a person is asked to confirm.
  const [asked, setAsked] = useState(null);
  const [busy, setBusy] = useState(null);
  const [failed, setFailed] = useState(null);
  const { id, permission_level: now } = session;
  const named = (name) => levels.find((level) => level.name === name);
  const reason = fixed(session, levels);
  const marked = busy ?? picked ?? now;
  async function change(name) {
    setAsked(null); setFailed(null); setBusy(name);
    try {
      await send("PUT", ofSession(id, "settings"), { settings: { permission_level: name } });
      keep(id, name);
    } catch (error) { setFailed(error); }
    await onChanged();
    setBusy(null); setPicked(null);
  }
  async function ask(name) {
    setFailed(null);
    try {
      const ends = await running(id);
      if (ends.length || (named(now) && named(name).rank > named(now).rank)) setAsked({ to: named(name), ends });
      else await change(name);
    } catch (error) { setFailed(error); }
  }
  const cancel = () => { setAsked(null); setPicked(null); };
  const before = kept().get(id);
  const offered = !reason && !busy && marked === now && before !== now && named(before)?.allowed;
  const names = levels.length ? levels.map(({ name }) => name) : [now];
  return html`<div class="run-level"><label>Permission level
      <select value=${marked} disabled=${Boolean(reason ?? busy)} aria-describedby="run-level-hint" onChange=${(event) => setPicked(event.target.value)}>
        ${names.map((name) => html`<option key=${name} value=${name} disabled=${named(name)?.allowed === false}>${name}</option>`)}</select></label>
    ${!reason && !busy && marked !== now && html`<span class="actions"><button class="primary" onClick=${() => ask(marked)}>Change to ${marked}</button>
      <button onClick=${cancel}>Keep ${now}</button></span>`}
    <p class="hint" id="run-level-hint"><${Hint} session=${session} levels=${levels} busy=${busy} reason=${reason} /></p>
    ${offered && html`<p class="hint">It was ${before} here, and was changed elsewhere. <button class="plain link" onClick=${() => ask(before)}>Change to ${before}</button></p>`}
    ${failed && html`<${Failure} error=${failed} />`}
    ${asked && html`<${ConfirmLevel} session=${id} from=${named(now)} to=${asked.to} ends=${asked.ends} onYes=${() => change(asked.to.name)} onNo=${cancel}
      onFailure=${(error) => { setAsked(null); setFailed(error); }} />`}</div>`;
}
