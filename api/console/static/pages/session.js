// One session: its state, and a page for each part of it.

import { html, useState } from "../vendor/preact.js";
import { credential, ofSession, send } from "../api.js";
import { Badge, Confirm, Failure, Later, Loading, Raw, StatusBadge, Time, useStrip } from "../parts.js";
import { bytes, number, percent } from "../format.js";
import { link } from "./overview_sessions.js";
import { useSession } from "./session_record.js";
import { Source } from "./file_view.js";
import { Activity } from "./session_activity.js";
import { Code } from "./session_code.js";
import { Files } from "./session_files.js";
import { LevelAndPolicy } from "./session_level.js";
import { Processes } from "./session_processes.js";
import { Proposals } from "./session_proposals.js";
import { SessionRun } from "./session_run.js";
import { Ends, TimeDialog } from "./session_time.js";
import { TakeSnapshot } from "./snapshots.js";
import { SessionTurns } from "./session_turns.js";

const keptFiles = async () => (await import("./named_snapshots.js")).KeptFiles;
const fork = async () => (await import("./named_snapshots.js")).Fork;

const TABS = [
  ["activity", "Activity"], ["run", "Run"], ["turns", "Turns"], ["proposals", "Proposals"], ["processes", "Processes"], ["terminals", "Terminals"], ["shell", "Shell"], ["shells", "Named shells"], ["code", "Code"],
  ["files", "Files"], ["level", "Level and policy"], ["raw", "Raw"],
];

/** Only a session in proposal mode stages anything. */
const tabsOf = ({ policy }) => TABS.filter(([name]) => name !== "proposals" || policy.world_rules?.proposal_mode);

const MOST_CHILDREN = 20;

const live = (session) => ["active", "paused"].includes(session.status);

function Actions({ session, refresh }) {
  const [asking, setAsking] = useState(null);
  const [error, setError] = useState(null);
  const act = async (method, ...rest) => {
    setAsking(null);
    setError(null);
    try { await send(method, ofSession(session.id, ...rest)); } catch (failed) { setError(failed); }
  };
  if (credential().session || !live(session)) return null;
  return html`<p class="actions">
    ${session.status === "active"
      ? html`<button onClick=${() => act("POST", "pause")}>Pause</button>`
      : html`<button onClick=${() => act("POST", "resume")}>Resume</button>`}
    <button onClick=${() => act("POST", "interrupt")}>Interrupt</button>
    <button onClick=${() => setAsking("time")}>Extend time</button>
    ${session.status === "active" && !session.consume && html`<button onClick=${() => setAsking("snapshot")}>Snapshot</button>`}
    ${!session.consume && html`<button onClick=${() => setAsking("files")}>Keep files</button> <button onClick=${() => setAsking("fork")}>Fork</button>`}
    <button onClick=${() => setAsking("complete")}>Complete</button>
    <button class="danger" onClick=${() => setAsking("abort")}>Abort</button></p>
    ${error && html`<${Failure} error=${error} />`}
    ${asking === "time" && html`<${TimeDialog} session=${session} onChanged=${refresh} onClose=${() => setAsking(null)} />`}
    ${asking === "snapshot" && html`<${TakeSnapshot} session=${session} onClose=${() => setAsking(null)} />`}
    ${asking === "files" && html`<${Later} load=${keptFiles} session=${session} onClose=${() => setAsking(null)} />`}
    ${asking === "fork" && html`<${Later} load=${fork} session=${session} onClose=${() => setAsking(null)} />`}
    ${["complete", "abort"].includes(asking) && html`<${Confirm} title="End ${session.id}?" yes=${asking === "abort" ? "Abort" : "Complete"}
      onYes=${() => act("POST", asking)} onNo=${() => setAsking(null)}>
      <p>Everything that runs is ended, and its sandbox is removed. The workspace and the record stay.</p><//>`}`;
}

/** What is used of a limit, as a figure above a bar. */
function Figure({ title, used, limit, show }) {
  const share = limit ? Math.min(1, used / limit) : 0;
  return html`<div class="figure"><span class="hint">${title}</span> <b>${show(used)}</b>
    <span class="hint">${limit ? `of ${show(limit)}` : "no limit"}</span>
    <progress class=${share > 0.9 ? "bad" : share > 0.7 ? "warn" : ""} max="1" value=${share} aria-label=${title}></progress></div>`;
}

function Figures({ session: { usage, disk, limits, budget } }) {
  const { commands } = budget.consumed;
  return html`<div class="figures-row">
    ${usage && html`<${Figure} title="CPU" used=${usage.cpu_percent} limit=${limits.cpus * 100} show=${percent} />
      <${Figure} title="Memory" used=${usage.memory_bytes} limit=${limits.memory_bytes} show=${bytes} />
      <${Figure} title="Processes" used=${usage.pids} limit=${limits.pids} show=${number} />`}
    ${disk && html`<${Figure} title="Workspace" used=${disk.used_bytes} limit=${disk.limit_bytes} show=${bytes} />`}
    ${commands != null && html`<${Figure} title="Commands" used=${commands} limit=${budget.limits.commands} show=${number} />`}</div>`;
}

/** The session that has spawned it, and those that it has spawned. */
const Family = ({ session: { parent, children = [] } }) => html`${parent && html`<span>child of <b>${link(parent)}</b></span>`}
  ${children.length > 0 && html`<span>children ${children.slice(0, MOST_CHILDREN).map((id, at) => html`${at > 0 && ", "}<b key=${id}>${link(id)}</b>`)}${
    children.length > MOST_CHILDREN && ` and ${children.length - MOST_CHILDREN} more`}</span>`}`;

/** `brief` leaves room for the page. */
function Head({ session, state, brief, refresh }) {
  const labels = Object.entries(session.labels);
  return html`<section class="card session-head"><div class="session-title"><div>
      <h1><${Raw} text=${session.id} /></h1>
      <p class="actions"><${StatusBadge} status=${session.status} /> <${Badge}>${session.activity}<//>
        <${Badge} kind=${`level-${session.permission_level}`}>${session.permission_level}<//>
        <${Badge}>policy ${session.policy.name ?? "of its own"}<//>
        ${session.break_glass?.map((access) => html`<${Badge} key=${access.id} kind="bad">open to <${Raw} text=${access.key} />: <${Raw} text=${access.reason} /><//>`)}
        ${state === "reconnecting" && html`<span class="connection" role="status">reconnecting</span>`}</p></div>
      <${Actions} session=${session} refresh=${refresh} /></div>
    <p class="facts hint"><${Family} session=${session} /><span>owner <b>${session.owner}</b></span> <span>created <${Time} at=${session.created_at} /></span>
      ${session.termination ? html`<span>ended <${Time} at=${session.termination.terminated_at} />: <b>${session.termination.rationale_code}</b></span>`
        : html`<span>last used <${Time} at=${session.last_activity_at} /></span> <${Ends} session=${session} />`}
      ${labels.map(([name, value]) => html`<span key=${name}><${Raw} text=${name} />: <b><${Raw} text=${value} /></b></span>`)}</p>
    ${live(session) && !brief && html`<${Figures} session=${session} />`}</section>`;
}

// Loaded when they are opened first: the code of terminals is large, and not every session has shells.
const terminals = async () => (await import("./session_terminals.js")).Terminals;
const namedShells = async () => (await import("./session_shells.js")).NamedShells;
const shell = async () => (await import("./session_shell.js")).Shell;

function Tab({ tab, found, query }) {
  const { session } = found;
  if (tab === "run") return html`<${SessionRun} found=${found} />`;
  if (tab === "turns") return html`<${SessionTurns} found=${found} />`;
  if (tab === "proposals") return html`<${Proposals} found=${found} />`;
  if (tab === "processes") return html`<${Processes} session=${session} query=${query} />`;
  if (tab === "terminals") return html`<${Later} key=${tab} load=${terminals} session=${session} query=${query} />`;
  if (tab === "shell") return html`<${Later} key=${tab} load=${shell} session=${session} query=${query} />`;
  if (tab === "shells") return html`<${Later} key=${tab} load=${namedShells} session=${session} query=${query} />`;
  if (tab === "code") return html`<${Code} session=${session} />`;
  if (tab === "files") return html`<${Files} found=${found} query=${query} />`;
  if (tab === "level") return html`<${LevelAndPolicy} session=${session} reload=${found.refresh} />`;
  if (tab === "raw") return html`<${Source} text=${JSON.stringify(session, null, 2)} path=${`${session.id}.json`} />`;
  return html`<${Activity} found=${found} query=${query} />`;
}

export function Session({ live: all, id, tab = "activity", query }) {
  const found = useSession(id, all);
  const { session, error } = found;
  const strip = useStrip(session && tab);
  if (!session) return error ? html`<${Failure} error=${error} again=${found.reload} />` : html`<${Loading} what=${id} />`;
  return html`<${Head} session=${session} state=${found.state} refresh=${found.refresh} brief=${["run", "shell", "shells"].includes(tab)} />
    ${error && html`<${Failure} error=${error} again=${found.reload} />`}
    <nav ref=${strip} class="tabs" aria-label="Parts of the session">${tabsOf(session).map(([name, title]) => html`
      <a href="#/sessions/${encodeURIComponent(id)}/${name}" aria-current=${tab === name ? "page" : undefined}>${title}</a>`)}</nav>
    <${Tab} tab=${tab} found=${found} query=${query} />`;
}
