// One turn: a line that unfolds to its outcome and its operations.

import { html, useEffect, useState } from "../vendor/preact.js";
import { get, ofSession, withQuery } from "../api.js";
import { Badge, Empty, Failure, Loading, Raw, Time, useLoaded } from "../parts.js";
import { number, seconds } from "../format.js";
import { Event } from "./session_event.js";

const MOST_OPERATIONS = 200;
export const TAGS = { ok: "good", proposed: "good", error: "bad", needs: "warn", nonconverged: "warn", cycle: "warn" };
const KINDS = { good: "allow", bad: "deny", warn: "pending" };
// An outcome in one line, and in full; `value` and `context` are data.
const MEMBERS = ["message", "error_type", "need_type", "description", "reason", "iterations", "cycle_length"];
const DATA = ["value", "context", "signatures", "stacktrace"];

export const dollars = (micro) => (micro ? `$${(micro / 1e6).toFixed(micro < 1e4 ? 6 : 4)}` : "$0");

/** The operations of that turn among the events, oldest first. */
export const operationsIn = (events, turn) => events
  .filter((event) => event.turn === turn && !event.operation.startsWith("turn.")).reverse();

const text = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

const Data = ({ title, value }) => value != null && html`<h3>${title}</h3>
  <pre tabindex="0" role="region" aria-label=${title}><${Raw} text=${text(value)} /></pre>`;

export function Outcome({ outcome }) {
  const members = MEMBERS.filter((name) => outcome[name] != null);
  return html`<dl><dt>outcome</dt><dd><${Badge} kind=${TAGS[outcome.tag]}>${outcome.tag}<//></dd>
      ${members.map((name) => html`<dt>${name.replaceAll("_", " ")}</dt><dd><${Raw} text=${outcome[name]} /></dd>`)}</dl>
    ${DATA.map((name) => html`<${Data} key=${name} title=${name} value=${outcome[name]} />`)}`;
}

const Staged = ({ proposals }) => proposals.length > 0 && html`<h3>staged</h3><ul>${proposals.map((each, at) =>
  html`<li key=${at}>${each.type} <code><${Raw} text=${each.ref ?? each.command} /></code></li>`)}</ul>`;

/** Operations, and beneath each nested program's first one what it did. */
function Branch({ operations, beneath, label }) {
  return html`<ol class="timeline" aria-label=${label}>${operations.map((each) => {
    const nested = each.operation === "subeval" ? beneath(each.seq) : [];
    return html`<${Event} key=${each.seq} event=${each} />${nested.length > 0 && html`<li class="nested" key="in ${each.seq}">
      <${Branch} operations=${nested} beneath=${beneath} label="nested program" /></li>`}`;
  })}</ol>`;
}

function Operations({ operations, running }) {
  const [whole, setWhole] = useState(false);
  const shown = whole ? operations : operations.slice(0, MOST_OPERATIONS);
  const known = new Set(shown.map(({ seq }) => seq));
  const beneath = (seq) => shown.filter(({ args }) => (known.has(args.within) ? args.within : null) === seq);
  if (!operations.length) return html`<p class="hint">${running ? "No operation has ended yet." : "It had no operations."}</p>`;
  return html`<${Branch} operations=${beneath(null)} beneath=${beneath} label="operations" />
    ${shown.length < operations.length && html`<p class="actions"><button onClick=${() => setWhole(true)}>Show all ${number(operations.length)} operations</button></p>`}`;
}

/** A turn as it was loaded, and what it has done since then. */
function Unfolded({ session, turn, events }) {
  const { turn_number: of, status } = turn;
  const [loaded, error, reload] = useLoaded(async () => {
    const [whole, record] = await Promise.all([
      get(ofSession(session.id, "turns", of)), get(withQuery(ofSession(session.id, "audit"), { turn: of, limit: 1 }))]);
    return { whole, code: record.items[0]?.args.code };
  }, [session.id, of, status]);
  if (!loaded) return error ? html`<${Failure} error=${error} again=${reload} />` : html`<${Loading} what="the turn" />`;
  const { whole, code } = loaded;
  const known = whole.operations.at(-1)?.seq ?? 0;
  const operations = [...whole.operations, ...operationsIn(events, of).filter((event) => event.seq > known)];
  return html`<div class="turn">
    <${Data} title="program" value=${code} />
    <h3>operations</h3><${Operations} operations=${operations} running=${status === "running"} />
    ${whole.outcome && html`<${Outcome} outcome=${whole.outcome} />`}
    ${whole.printed && html`<${Data} title="printed" value=${whole.printed} />`}
    <${Staged} proposals=${whole.proposals} /></div>`;
}

/** `open` unfolds it, as running does; `events` are the session's latest. */
export function Turn({ session, turn, events, open }) {
  const [unfolded, setUnfolded] = useState(turn.status === "running");
  useEffect(() => { if (open) setUnfolded(true); }, [open]);
  const { outcome, turn_number: of } = turn;
  const tag = outcome?.tag ?? "running";
  const count = Math.max(turn.operations_count, outcome ? 0 : operationsIn(events, of).length);
  return html`<li class="event ${KINDS[TAGS[tag]] ?? ""}"><details open=${unfolded} onToggle=${(toggled) =>
      toggled.target === toggled.currentTarget && setUnfolded(toggled.target.open)}>
    <summary><${Time} at=${turn.started_at} /> <span class="operation">Turn ${of}</span>
      <span class="verdict"><${Badge} kind=${TAGS[tag]}>${tag}<//></span>
      <span class="subject hint">${number(count)} operations · ${number(turn.tokens_used)} tokens · ${dollars(outcome?.metadata.cost_microdollars)}
        ${" · "}<${Raw} text=${turn.actor} />${outcome?.message && html` · <${Raw} text=${outcome.message} />`}</span>
      <span class="num">${outcome ? seconds(outcome.metadata.time_ms == null ? null : outcome.metadata.time_ms / 1000) : ""}</span></summary>
    ${unfolded && html`<${Unfolded} session=${session} turn=${turn} events=${events} />`}</details></li>`;
}

export const Turns = ({ session, turns, events, open }) => (turns.length
  ? html`<ol class="timeline turns" aria-label="turns">${turns.map((turn) => html`<${Turn} key=${turn.turn_number} session=${session}
      turn=${turn} events=${events} open=${turn.turn_number === open} />`)}</ol>`
  : html`<${Empty}>No turn has been run yet.<//>`);
