// The live sessions as a table, of which only the rows that changed are drawn again.

import { Component, html, useState } from "../vendor/preact.js";
import { withQuery } from "../api.js";
import { Meter, Sparkline } from "../charts.js";
import { Badge, Choice, Empty, Raw, Time } from "../parts.js";
import { bytes, number, percent } from "../format.js";

export const link = (id) => html`<a href="#/sessions/${encodeURIComponent(id)}"><${Raw} text=${id} /></a>`;

const CORE = 100;
const MOST_INDENT = 10;
const running = (session) => session.running.size;
const activity = (session) => (session.status === "paused" ? "paused" : session.activity);
const last = (values) => values?.at(-1) ?? null;

/** The largest share of a limit of the session's budget that is used. */
function mostUsed({ budget }) {
  const shares = Object.entries(budget.limits).filter(([, limit]) => limit)
    .map(([kind, limit]) => ({ kind, share: budget.consumed[kind] / limit }));
  return shares.sort((a, b) => b.share - a.share)[0];
}

// How a column is sorted; `class` says from which width on it is shown.
const COLUMNS = [
  { name: "session", title: "Session", key: (session) => session.id },
  { name: "activity", title: "Activity", key: (session) => [activity(session), running(session)].join(" ") },
  { name: "cpu", title: "CPU", most: true, key: (session, used) => last(used?.cpu_percent) },
  { name: "memory", title: "Memory", most: true, key: (session, used) => last(used?.memory_bytes) },
  { name: "disk", title: "Disk", most: true, wide: true, key: (session, used) => used?.disk?.used_bytes },
  { name: "budget", title: "Budget", most: true, wide: true, key: (session) => mostUsed(session)?.share },
  { name: "used", title: "Last used", most: true, wide: true, key: (session) => session.last_activity_at },
];

class Row extends Component {
  shouldComponentUpdate(next) {
    return next.session !== this.props.session || next.placed !== this.props.placed || next.used !== this.props.used || next.depth !== this.props.depth;
  }

  render({ session, used, depth, placed }) {
    const { limits } = session;
    const budget = mostUsed(session);
    const cpu = last(used?.cpu_percent);
    const memory = last(used?.memory_bytes);
    return html`<tr>
      <th scope="row" class="who ${depth ? `child depth-${Math.min(depth, MOST_INDENT)}` : ""}"><div>${link(session.id)}${depth > 0 && html`<span class="sr"> child of <${Raw} text=${session.parent} /></span>`}</div>
        <div><${Badge} kind=${`level-${session.permission_level}`}>${session.permission_level}<//> <span class="hint"><${Raw} text=${session.owner} /></span></div></th>
      <td><span class="activity ${activity(session)}">${activity(session)}</span>
        ${running(session) > 0 && html`<div class="hint">${number(running(session))} ${running(session) === 1 ? "command" : "commands"}</div>`}</td>
      <td class="cpu">${cpu == null ? "–" : html`<div class="beside"><${Sparkline} values=${used.cpu_percent} least=${limits.cpus * CORE} label="CPU in the last ten minutes" />
        <${Meter} label="CPU" used=${cpu} limit=${limits.cpus * CORE}>${percent(cpu)}<//></div>`}</td>
      <td>${memory == null ? "–" : html`<${Meter} label="Memory" used=${memory} limit=${limits.memory_bytes}>${bytes(memory)}<//>`}</td>
      <td class="wide">${used?.disk ? html`<${Meter} label="Disk" used=${used.disk.used_bytes} limit=${used.disk.limit_bytes}>${bytes(used.disk.used_bytes)}<//>` : "–"}</td>
      <td class="wide">${budget ? html`<${Meter} label=${`Budget: ${budget.kind}`} used=${budget.share} limit=${1}>${percent(budget.share * 100)} <span class="hint">${budget.kind.replaceAll("_", " ")}</span><//>` : "–"}</td>
      <td class="wide"><${Time} at=${session.last_activity_at} /></td>
      ${placed && html`<td class="wide"><${Raw} text=${session.node ?? "–"} /></td>`}</tr>`;
  }
}

function compare(a, b) {
  if (a == null || b == null) return (a == null) - (b == null);
  return typeof a === "number" ? a - b : String(a).localeCompare(String(b));
}

// Where a session lives: only a cluster has it.
const NODE = { name: "node", title: "Node", wide: true, key: (session) => session.node };

/** The sessions that match, in the order that is wanted. */
function arranged(sessions, usage, { text, level, by, down }) {
  const wanted = text.toLowerCase();
  const shown = sessions.filter((session) => (!level || session.permission_level === level)
    && (!wanted || [session.id, session.owner, session.node ?? "", activity(session), ...Object.entries(session.labels).map((pair) => pair.join(":"))]
      .some((word) => word.toLowerCase().includes(wanted))));
  const column = [...COLUMNS, NODE].find(({ name }) => name === by);
  if (!column) return shown;
  const keyed = shown.map((session) => [column.key(session, usage.of(session)), session]);
  return keyed.sort(([a], [b]) => compare(a, b) * (down && a != null && b != null ? -1 : 1)).map(([, session]) => session);
}

/** The sessions as `[session, depth]`, in that order, with each one's children beneath it. */
export function nested(sessions) {
  const ids = new Set(sessions.map(({ id }) => id));
  const beneath = Map.groupBy(sessions, ({ parent }) => (ids.has(parent) ? parent : null));
  const found = [];
  const add = (session, depth) => {
    found.push([session, depth]);
    for (const child of beneath.get(session.id) ?? []) add(child, depth + 1);
  };
  for (const root of beneath.get(null) ?? []) add(root, 0);
  return found;
}

export function LiveSessions({ sessions, usage, query }) {
  const [wanted, setWanted] = useState({
    text: query.get("text") ?? "", level: query.get("level") ?? "", by: query.get("by") ?? "", down: query.get("down") === "1",
  });
  const change = (members) => {
    const now = { ...wanted, ...members };
    setWanted(now);
    history.replaceState(null, "", withQuery("#/sessions", { ...now, down: now.down ? "1" : "" }));
  };
  const sort = ({ name, most }) => change({ by: name, down: wanted.by === name ? !wanted.down : Boolean(most) });
  const levels = [...new Set(sessions.map((session) => session.permission_level))].sort();
  const shown = arranged(sessions, usage, wanted);
  const placed = sessions.some((session) => session.node);
  const columns = placed ? [...COLUMNS, NODE] : COLUMNS;
  return html`<section aria-label="live sessions"><div class="head"><h2>Live sessions <span class="hint">${
      shown.length === sessions.length ? number(shown.length) : `${number(shown.length)} of ${number(sessions.length)}`}</span></h2>
      <div class="controls"><label class="quiet">Filter <input type="search" value=${wanted.text} placeholder="id, owner, label"
          onInput=${(event) => change({ text: event.target.value })} /></label>
        <${Choice} label="Level" value=${wanted.level} among=${["", ...levels]} onChoose=${(level) => change({ level })} /></div></div>
    ${shown.length ? html`<div class="scroll" tabindex="0" role="region" aria-label="table of live sessions"><table class="sessions">
      <thead><tr>${columns.map((column) => html`<th scope="col" class=${column.wide ? "wide" : ""}
        aria-sort=${wanted.by === column.name ? (wanted.down ? "descending" : "ascending") : undefined}>
        <button class="sort" onClick=${() => sort(column)}>${column.title}</button></th>`)}</tr></thead>
      <tbody>${nested(shown).map(([session, depth]) => html`<${Row} key=${`${session.id} ${session.incarnation}`} session=${session} used=${usage.of(session)} depth=${depth} placed=${placed} />`)}</tbody></table></div>`
      : html`<${Empty}>${sessions.length ? "No session matches. Change the filter."
        : html`No session is live. Begin one with <b>New session</b>, or with <code>paddock run -- ls</code>`}<//>`}</section>`;
}
