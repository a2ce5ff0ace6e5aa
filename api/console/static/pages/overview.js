// All sessions, what was denied most, and the latest ends.

import { html } from "../vendor/preact.js";
import { useLive } from "../live.js";
import { Badge, Empty, Failure, Loading, Raw, StatusBadge, Table, Time } from "../parts.js";
import { number, words } from "../format.js";

const LIVE = ["active", "paused"];
const ACTIVITY = { running: "good", suspended: "warn" };
const MOST_DENIALS = 8;

export const link = (id) => html`<a href="#/sessions/${encodeURIComponent(id)}"><${Raw} text=${id} /></a>`;

/** The largest share of a limit of the session's budget that is used. */
function mostUsed({ budget }) {
  const shares = Object.entries(budget.limits).filter(([, limit]) => limit)
    .map(([kind, limit]) => ({ kind, share: budget.consumed[kind] / limit }));
  return shares.sort((a, b) => b.share - a.share)[0];
}

const COLUMNS = [
  { name: "Session", key: (session) => session.id, show: (session) => link(session.id) },
  { name: "Level", key: (session) => session.permission_level, show: (session) => html`<${Badge} kind=${`level-${session.permission_level}`}>${session.permission_level}<//>` },
  { name: "Owner", key: (session) => session.owner, show: (session) => session.owner },
  { name: "Activity", key: (session) => session.activity, show: (session) => html`<${Badge} kind=${ACTIVITY[session.activity]}>${session.status === "paused" ? "paused" : session.activity}<//>` },
  { name: "Running", num: true, key: (session) => session.running ?? session.commands.length, show: (session) => number(session.running ?? session.commands.length) },
  { name: "Budget", key: (session) => mostUsed(session)?.share ?? 0, show: Used },
  { name: "Last activity", key: (session) => session.last_activity_at, show: (session) => html`<${Time} at=${session.last_activity_at} />` },
  { name: "Created", key: (session) => session.created_at, show: (session) => html`<${Time} at=${session.created_at} />` },
];

function Used(session) {
  const most = mostUsed(session);
  if (!most) return "–";
  const text = `${Math.round(most.share * 100)} % of ${most.kind}`;
  return html`<progress max="1" value=${Math.min(1, most.share)} title=${text} aria-label=${text}
    class=${most.share > 0.9 ? "bad" : ""}></progress>`;
}

const ENDS = [
  { name: "Session", key: (session) => session.id, show: (session) => link(session.id) },
  { name: "End", key: (session) => session.status, show: (session) => html`<${StatusBadge} status=${session.status} />` },
  { name: "Reason", key: (session) => session.termination?.rationale_code, show: (session) => session.termination?.rationale_code ?? "–" },
  { name: "When", key: (session) => session.termination?.terminated_at, show: (session) => html`<${Time} at=${session.termination?.terminated_at} />` },
];

/** The latest denials, those of one rule and session together. */
function denials(events) {
  const found = new Map();
  for (const event of events) {
    if (event.decision !== "deny") continue;
    const key = `${event.session_id} ${event.rule}`;
    const known = found.get(key) ?? { ...event, times: 0 };
    known.times += event.args.repeats ?? 1;
    found.set(key, known);
  }
  return [...found.values()].sort((a, b) => b.times - a.times).slice(0, MOST_DENIALS);
}

const what = (event) => words(event.args.argv ?? event.args.path ?? event.args.host ?? event.args.command ?? "");

export function Overview({ live }) {
  useLive(live);
  if (live.error && !live.loaded) return html`<${Failure} error=${live.error} again=${() => location.reload()} />`;
  if (!live.loaded) return html`<${Loading} what="sessions" />`;
  const all = [...live.sessions.values()];
  const running = all.filter((session) => LIVE.includes(session.status));
  const ended = all.filter((session) => !LIVE.includes(session.status))
    .sort((a, b) => b.termination.terminated_at.localeCompare(a.termination.terminated_at)).slice(0, 20);
  const denied = denials(live.latest);
  return html`<h1>Sessions</h1>
    <p class="figures">
      <b>${number(running.length)}</b> live
      <b>${number(running.filter((session) => session.activity === "running").length)}</b> running
      <b>${number(running.filter((session) => session.activity === "suspended").length)}</b> suspended
      <b>${number(live.approvals)}</b> <a href="#/approvals">waiting for approval</a></p>
    <${Table} label="live sessions" columns=${COLUMNS} rows=${running} of=${(session) => session.id}
      empty=${html`No session is live. Start one: <code>paddock run -- ls</code>`} />
    <div class="two">
      <section><h2>Denied most, lately</h2>
        ${denied.length ? html`<ul class="denials">${denied.map((event) => html`<li>
          <b>${event.times}×</b> ${link(event.session_id)} <code>${event.rule}</code> <${Raw} text=${what(event)} /></li>`)}</ul>`
          : html`<${Empty}>Nothing.<//>`}</section>
      <section><h2>Latest ends</h2>
        <${Table} label="ended sessions" columns=${ENDS} rows=${ended} filter=${false}
          of=${(session) => `${session.id} ${session.incarnation}`} empty="No session has ended." /></section>
    </div>`;
}
