// The levels beside each other, with what each permits; a button changes to the marked one.

import { html, useState } from "../vendor/preact.js";
import { credential, ofSession, send } from "../api.js";
import { Badge, Failure } from "../parts.js";
import { ConfirmLevel, permissions, running } from "./level_change.js";

function Card({ level, now, chosen, current, onChoose }) {
  return html`<label class="level-card ${chosen ? "chosen" : ""} ${level.name}"><span class="level-name">
      <input type="radio" name="level" aria-label=${level.name} checked=${chosen} onChange=${() => onChoose(level.name)} />
      <b>${level.name}</b> ${now && html`<${Badge} kind="level-${level.name}">now<//>`}</span>
    <dl>${permissions(level).map(([of, permitted], at) => html`<dt>${of}</dt>
      <dd class=${current && permitted !== permissions(current)[at][1] ? "differs" : ""}>${permitted}</dd>`)}</dl>
    ${level.commands && html`<p class="hint mono names">${level.commands.join(" ")}</p>`}</label>`;
}

export function LevelSelector({ session, levels, onChanged }) {
  const [picked, setPicked] = useState(null);
  // `{to, ends}`: the change that a person is asked to confirm.
  const [asked, setAsked] = useState(null);
  const [failed, setFailed] = useState(null);
  const [busy, setBusy] = useState(null);
  const [done, setDone] = useState(null);
  const named = (name) => levels.find((level) => level.name === name);
  const current = named(session.permission_level);
  const marked = busy ?? picked ?? session.permission_level;
  async function change(name) {
    setAsked(null); setFailed(null); setDone(null); setBusy(name);
    try {
      await send("PUT", ofSession(session.id, "settings"), { settings: { permission_level: name } });
      setDone(name);
    } catch (error) { setFailed(error); }
    setBusy(null); setPicked(null);
    onChanged();
  }
  async function ask() {
    setFailed(null);
    try {
      const ends = await running(session.id);
      if (ends.length || named(picked).rank > (current?.rank ?? 0)) setAsked({ to: named(picked), ends });
      else await change(picked);
    } catch (error) { setFailed(error); }
  }
  const cancel = () => { setAsked(null); setPicked(null); };
  const fixed = busy || credential().session || session.status !== "active";
  return html`<fieldset class="levels" disabled=${fixed}><legend>Permission level</legend>
      ${levels.map((level) => html`<${Card} key=${level.name} level=${level} now=${level === current} chosen=${level.name === marked}
        current=${current} onChoose=${setPicked} />`)}</fieldset>
    <p class="actions">${!fixed && html`<button class="primary" disabled=${marked === session.permission_level} onClick=${ask}>${
        marked === session.permission_level ? "Change the level" : `Change to ${marked}`}</button>`}
      <span class="hint" role="status">${busy ? `Changing to ${busy}: a new sandbox starts.`
      : done ? `The session is at ${done} now, in a new sandbox.`
      : session.status !== "active" ? "Only an active session's level can be changed."
      : credential().session ? "Only the host may change the level." : "A new sandbox is started, and what runs is ended."}</span></p>
    ${failed && html`<${Failure} error=${failed} />`}
    ${asked && html`<${ConfirmLevel} session=${session.id} from=${current} to=${asked.to} ends=${asked.ends} onYes=${() => change(asked.to.name)} onNo=${cancel}
      onFailure=${(error) => { setAsked(null); setFailed(error); }} />`}`;
}
