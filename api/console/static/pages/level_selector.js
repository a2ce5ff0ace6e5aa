// The levels beside each other, with what each permits; a higher one is confirmed.

import { html, useState } from "../vendor/preact.js";
import { credential, ofSession, send } from "../api.js";
import { Badge, Confirm, Failure } from "../parts.js";
import { bytes, seconds } from "../format.js";

const NETWORKS = { none: "no network", egress: "the governed way out", open: "an open network" };

/** What a level permits, as `[of, permitted, worth]` rows; more is worth more. */
const permissions = (level) => [
  ["Commands", level.commands ? `${level.commands.length} commands` : "any command", level.commands?.length ?? Infinity],
  ["Network", NETWORKS[level.network], ["none", "egress", "open"].indexOf(level.network)],
  ["Own programs", level.noexec ? "not executable" : "executable", Number(!level.noexec)],
  ["Readable", level.confinement.paths ? "workspace and programs" : "the whole image", Number(!level.confinement.paths)],
  ["Tools", `up to ${level.risk_tier} risk`, ["low", "medium", "high"].indexOf(level.risk_tier)],
  ["CPU", `${level.limits.cpus}`, level.limits.cpus],
  ["Memory", bytes(level.limits.memory_bytes), level.limits.memory_bytes],
  ["Processes", `${level.limits.pids}`, level.limits.pids],
  ["Workspace", bytes(level.limits.workspace_bytes), level.limits.workspace_bytes],
  ["A command's time", `up to ${seconds(level.timeout_max).replace(/ 0 (s|min)$/, "")}`, level.timeout_max],
];

/** The rows in which a level permits more than another. */
function gained(from, to) {
  const before = permissions(from);
  return permissions(to).map((row, at) => [row[0], before[at][1], row[1], row[2] > before[at][2]]).filter((row) => row[3]);
}

function Card({ level, chosen, current, onChoose }) {
  return html`<label class="level-card ${chosen ? "chosen" : ""} ${level.name}"><span class="level-name">
      <input type="radio" name="level" aria-label=${level.name} checked=${chosen} onChange=${() => onChoose(level.name)} />
      <b>${level.name}</b> ${chosen && html`<${Badge} kind="level-${level.name}">now<//>`}</span>
    <dl>${permissions(level).map(([of, permitted], at) => html`<dt>${of}</dt>
      <dd class=${current && permitted !== permissions(current)[at][1] ? "differs" : ""}>${permitted}</dd>`)}</dl>
    ${level.commands && html`<p class="hint mono names">${level.commands.join(" ")}</p>`}</label>`;
}

/** Asks whether a session may have a higher level. */
export function Raise({ from, to, onYes, onNo }) {
  return html`<${Confirm} title="Raise to ${to.name}?" yes="Raise" onYes=${onYes} onNo=${onNo}>
    <p>It will permit more:</p><dl>${gained(from, to).map(([of, before, after]) => html`<dt>${of}</dt><dd>${before} → <b>${after}</b></dd>`)}</dl>
    <p>The sandbox is replaced: what runs now is ended, the workspace stays.</p><//>`;
}

export function LevelSelector({ session, levels, onChanged }) {
  const [asked, setAsked] = useState(null);
  const [failed, setFailed] = useState(null);
  const [busy, setBusy] = useState(null);
  const [done, setDone] = useState(null);
  const [round, setRound] = useState(0);
  const named = (name) => levels.find((level) => level.name === name);
  const current = named(session.permission_level);
  async function change(name) {
    setAsked(null); setFailed(null); setDone(null); setBusy(name);
    try {
      await send("PUT", ofSession(session.id, "settings"), { settings: { permission_level: name } });
      setDone(name);
    } catch (error) { setFailed(error); }
    setBusy(null);
    onChanged();
  }
  const choose = (name) => ((named(name).rank > (current?.rank ?? 0)) ? setAsked(name) : change(name));
  // The browser has marked the level that was asked for: drawn anew, the current one is marked.
  const cancel = () => { setAsked(null); setRound(round + 1); };
  const fixed = busy || credential().session || session.status !== "active";
  return html`<fieldset key=${round} class="levels" disabled=${fixed}><legend>Permission level</legend>
      ${levels.map((level) => html`<${Card} key=${level.name} level=${level} chosen=${level.name === (busy ?? session.permission_level)}
        current=${current} onChoose=${choose} />`)}</fieldset>
    <p class="hint" role="status">${busy ? `Changing to ${busy}: a new sandbox starts.`
      : done ? `The session is at ${done} now, in a new sandbox.`
      : session.status !== "active" ? "Only an active session's level can be changed."
      : credential().session ? "Only the host may change the level." : "A change holds at once: a new sandbox is started, and what runs is ended."}</p>
    ${failed && html`<${Failure} error=${failed} />`}
    ${asked && html`<${Raise} from=${current} to=${named(asked)} onYes=${() => change(asked)} onNo=${cancel} />`}`;
}
