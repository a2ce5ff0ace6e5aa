// All sessions, the host, what was denied most, what waits for a person, and the latest ends.

import { html, useState } from "../vendor/preact.js";
import { Meter, Sparkline } from "../charts.js";
import { useLive } from "../live.js";
import { Badge, Empty, Failure, Loading, Raw, StatusBadge, Time } from "../parts.js";
import { bytes, number, percent } from "../format.js";
import { NewSession } from "./new_session.js";
import { LiveSessions, link } from "./overview_sessions.js";
import { RestoreSession } from "./snapshots.js";
import { subject } from "./session_event.js";

export { link };

const LIVE = ["active", "paused"];
const MOST_ROWS = 8;

const counted = (sessions, activity) => sessions.filter((session) => session.activity === activity).length;

const Tile = ({ title, value, children }) => html`<div class="tile"><h2>${title}</h2><p class="value">${value}</p>${children}</div>`;

function HostTiles({ host }) {
  const last = (values) => values.at(-1) ?? 0;
  return html`<${Tile} title="Processors" value=${percent(last(host.cpu_percent))}><p class="hint">of ${number(host.cpus)} cores</p>
      <${Sparkline} values=${host.cpu_percent} least=${100} label="The host's CPU in the last ten minutes" /><//>
    <${Tile} title="Memory" value=${bytes(last(host.memory_used))}><p class="hint">of ${bytes(host.memory_bytes)}</p>
      <${Sparkline} values=${host.memory_used} least=${host.memory_bytes} label="The host's memory in the last ten minutes" /><//>
    <${Tile} title="Disk" value=${bytes(last(host.disk_used))}><p class="hint">of ${bytes(host.disk_bytes)}</p>
      <${Meter} label="The host's disk" used=${last(host.disk_used)} limit=${host.disk_bytes} /><//>`;
}

function Tiles({ live, sessions }) {
  const denials = [...live.denials.values()].reduce((sum, group) => sum + group.times, 0);
  const suspended = counted(sessions, "suspended");
  return html`<div class="tiles">
    <${Tile} title="Live" value=${number(sessions.length)}><p class="hint">${number(counted(sessions, "running"))} running${
      suspended ? `, ${number(suspended)} suspended` : ""}</p><//>
    ${live.usage.host && html`<${HostTiles} host=${live.usage.host} />`}
    <${Tile} title="Denied lately" value=${number(denials)}><p><a href="#/audit?decision=deny">See them</a></p><//>
    <${Tile} title="Waiting for approval" value=${number(live.approvals)}><p><a href="#/approvals">${live.approvals ? "Decide" : "Approvals"}</a></p><//></div>`;
}

function Denied({ groups }) {
  const shown = [...groups].sort((a, b) => b.times - a.times).slice(0, MOST_ROWS);
  if (!shown.length) return html`<${Empty}>Nothing was denied.<//>`;
  return html`<ol class="rows">${shown.map((group) => html`<li key=${`${group.session_id} ${group.operation} ${group.rule}`}>
    <span class="times">${number(group.times)}×</span>
    <span class="grow"><a href="#/audit?${new URLSearchParams({ decision: "deny", rule: group.rule ?? "", session: group.session_id ?? "" })}"><code>${group.rule ?? "no rule"}</code></a>
      <span class="line mono"><${Raw} text=${subject(group.latest)} /></span></span>
    <span class="side">${group.session_id && link(group.session_id)}<br /><span class="hint"><${Time} at=${group.latest.time} /></span></span></li>`)}</ol>`;
}

function Pending({ pending }) {
  if (!pending.length) return html`<${Empty}>Nothing waits.<//>`;
  return html`<ol class="rows">${pending.slice(0, MOST_ROWS).map((approval) => html`<li key=${approval.id}>
    <span class="grow"><a href="#/approvals?id=${encodeURIComponent(approval.id)}">${approval.tool}</a> <${Badge}>${approval.risk_tier}<//>
      <span class="line mono"><${Raw} text=${approval.command} /></span></span>
    <span class="side">${link(approval.session_id)}<br /><span class="hint"><${Time} at=${approval.requested_at} /></span></span></li>`)}</ol>`;
}

function Ended({ ended }) {
  if (!ended.length) return html`<${Empty}>No session has ended lately.<//>`;
  return html`<ol class="rows">${ended.slice(0, MOST_ROWS).map((session) => html`<li key=${`${session.id} ${session.incarnation}`}>
    <span class="grow">${link(session.id)}<span class="line hint">${session.termination.rationale_code.replaceAll("_", " ").toLowerCase()}</span></span>
    <span class="side"><${StatusBadge} status=${session.status} /><br /><span class="hint"><${Time} at=${session.termination.terminated_at} /></span></span></li>`)}</ol>`;
}

const Panel = ({ title, children }) => html`<section class="card panel" aria-label=${title.toLowerCase()}><h2>${title}</h2>${children}</section>`;

export function Overview({ live, query }) {
  useLive(live);
  const [asking, setAsking] = useState(null);
  const close = () => setAsking(null);
  if (live.error && !live.loaded) return html`<${Failure} error=${live.error} again=${() => location.reload()} />`;
  if (!live.loaded) return html`<${Loading} what="sessions" />`;
  const all = [...live.sessions.values()];
  const sessions = all.filter((session) => LIVE.includes(session.status));
  const ended = all.filter((session) => !LIVE.includes(session.status))
    .sort((a, b) => b.termination.terminated_at.localeCompare(a.termination.terminated_at));
  return html`<div class="head"><h1>Sessions</h1><p class="actions"><button onClick=${() => setAsking("restore")}>Restore</button>
      <button class="primary" onClick=${() => setAsking("new")}>New session</button></p></div>
    ${asking === "new" && html`<${NewSession} onClose=${close} />`}${asking === "restore" && html`<${RestoreSession} onClose=${close} />`}<${Tiles} live=${live} sessions=${sessions} />
    <${LiveSessions} sessions=${sessions} usage=${live.usage} query=${query} />
    <div class="panels"><${Panel} title="Denied most"><${Denied} groups=${live.denials.values()} /><//>
      <${Panel} title="Waiting for approval"><${Pending} pending=${live.pending} /><//>
      <${Panel} title="Ended sessions"><${Ended} ended=${ended} /><//></div>`;
}
