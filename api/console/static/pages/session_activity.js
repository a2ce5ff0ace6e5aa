// A session's record as a timeline.

import { html, useEffect, useState } from "../vendor/preact.js";
import { get, ofSession } from "../api.js";
import { Badge, Choice, DECISIONS, Empty, Failure, Loading, Raw } from "../parts.js";
import { words } from "../format.js";
import { after, before, seqAt } from "./session_record.js";
import { Event } from "./session_event.js";

export { Event, subject } from "./session_event.js";

const KINDS = {
  "": "Everything", "command.": "Commands", "file.": "Files", "egress.": "Network",
  "pty.": "Terminals", "session.": "Session",
};

function Verify({ id }) {
  const [verdict, setVerdict] = useState(null);
  const [error, setError] = useState(null);
  const verify = () => get(ofSession(id, "audit", "verify")).then(setVerdict, setError);
  return html`<span class="actions"><button onClick=${verify}>Verify the chain</button>
    ${verdict && html`<span role="status"><${Badge} kind=${verdict.ok ? "good" : "bad"}>${verdict.ok ? "intact" : "differs"}<//>
      ${verdict.ok ? ` ${verdict.seq} events` : ` after event ${verdict.seq}: ${verdict.reason}`}</span>`}</span>
    ${error && html`<${Failure} error=${error} />`}`;
}

/** The events that the filters leave. */
export function filtered(events, { text, decision, kind }) {
  const wanted = text.toLowerCase();
  return events.filter((event) => (!decision || event.decision === decision)
    && event.operation.startsWith(kind)
    && (!wanted || JSON.stringify(event).toLowerCase().includes(wanted)));
}

/** By command: its words. The end of a command is recorded without them. */
function programs(events) {
  const starts = events.filter((event) => event.operation === "command.start" && event.args.argv);
  return new Map(starts.map((event) => [event.args.command_id, words(event.args.argv)]));
}

const minute = (event) => new Date(event.time).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });

/** The events by minute, as `[[minute, events], …]`. */
function byMinute(events) {
  const found = [];
  for (const event of events) {
    const at = minute(event);
    if (found.at(-1)?.[0] === at) found.at(-1)[1].push(event);
    else found.push([at, [event]]);
  }
  return found;
}

function Timeline({ events, all, wanted }) {
  const started = programs(all);
  useEffect(() => document.getElementById("event")?.scrollIntoView({ block: "center" }), [wanted]);
  return byMinute(events).map(([at, items]) => html`<section key=${at} class="minute"><h2>${at}</h2>
    <ol class="timeline">${items.map((event) => html`<${Event} key=${`${event.seq} ${event.seq === wanted}`} event=${event} open=${event.seq === wanted}
      about=${event.args.argv ? null : started.get(event.args.command_id)} />`)}</ol></section>`);
}

/** A part of the record that does not move: `[items, jump, move, leave, error]`. */
function usePast(id, last) {
  const [past, setPast] = useState({});
  const show = (items) => items.length > 0 && setPast({ items });
  const failed = (error) => setPast((now) => ({ ...now, error }));
  /** Shows the events from that number on, and some before it. */
  const jump = (seq) => after(id, Math.max(0, seq - 21)).then(show, failed);
  const atTime = (time) => seqAt(id, time, last).then((seq) => jump(Math.min(seq, last)), failed);
  const move = (items) => items.then(show, failed);
  return { ...past, jump, atTime, move, leave: () => setPast({}) };
}

function Jump({ past }) {
  const [time, setTime] = useState("");
  const go = (event) => { event.preventDefault(); if (time) past.atTime(new Date(time).getTime()); };
  return html`<form class="jump" onSubmit=${go}><label>Jump to a time
    <span class="joined"><input type="datetime-local" step="1" value=${time} onInput=${(event) => setTime(event.target.value)} />
    <button>Go</button></span></label></form>`;
}

function Filters({ filter, setFilter }) {
  const change = (members) => setFilter({ ...filter, ...members });
  return html`<form class="filters" onSubmit=${(event) => event.preventDefault()}>
    <label>Text <input type="search" value=${filter.text} placeholder="words, paths, rules, hashes"
      onInput=${(event) => change({ text: event.target.value })} /></label>
    <label>Kind <select value=${filter.kind} onChange=${(event) => change({ kind: event.target.value })}>
      ${Object.entries(KINDS).map(([kind, title]) => html`<option key=${kind} value=${kind}>${title}</option>`)}</select></label>
    <${Choice} label="Decision" value=${filter.decision} among=${DECISIONS} onChoose=${(decision) => change({ decision })} /></form>`;
}

function Counts({ events, onDenied }) {
  const denied = events.filter((event) => event.decision === "deny").length;
  const waiting = events.filter((event) => event.decision === "pending").length;
  return html`<span class="hint">${events.length} events shown</span>
    ${denied > 0 && html`<button class="chip bad" onClick=${onDenied}>${denied} refused</button>`}
    ${waiting > 0 && html`<a class="chip warn" href="#/approvals">${waiting} waited for a person</a>`}`;
}

export function Activity({ found, query }) {
  const { session } = found;
  const [filter, setFilter] = useState({ text: query.get("text") ?? "", decision: query.get("decision") ?? "", kind: "" });
  const past = usePast(session.id, session.telemetry.events_emitted);
  const wanted = Number(query.get("seq")) || null;
  useEffect(() => { if (wanted) past.jump(wanted); }, [wanted]);
  const all = past.items ?? found.events;
  const shown = filtered(all, filter);
  const { id } = session;
  return html`<div class="tools"><${Filters} filter=${filter} setFilter=${setFilter} /><${Jump} past=${past} /></div>
    <p class="actions"><${Counts} events=${all} onDenied=${() => setFilter({ ...filter, decision: "deny" })} />
      <span class="space"></span><${Verify} id=${id} />
      <a href="#/audit?session=${encodeURIComponent(id)}">Search the whole record</a></p>
    ${past.error && html`<${Failure} error=${past.error} />`}
    ${past.items && html`<p class="actions notice" role="status">A part of the record: events ${all.at(-1).seq} to ${all[0].seq}
      of ${session.telemetry.events_emitted}.
      <button disabled=${all[0].seq >= session.telemetry.events_emitted} onClick=${() => past.move(after(id, all[0].seq))}>Later</button>
      <button class="primary" onClick=${past.leave}>Back to now</button></p>`}
    ${shown.length ? html`<${Timeline} events=${shown} all=${all} wanted=${wanted} />`
      : found.state === "loading" ? html`<${Loading} what="the record" />`
      : html`<${Empty}>${all.length ? html`Nothing matches. <button class="plain link" onClick=${() => setFilter({ text: "", decision: "", kind: "" })}>Show everything</button>`
        : "Nothing is on record yet."}<//>`}
    ${all.length > 0 && all.at(-1).seq > 1 && html`<p><button onClick=${() => (past.items
      ? past.move(before(id, all.at(-1).seq)) : found.older())}>Show earlier events</button></p>`}`;
}
