// A run as a thread: messages, ticks with the calls of tools, children beneath the calls that started them.

import { html } from "../vendor/preact.js";
import { Markdown } from "../markdown.js";
import { Badge, Raw } from "../parts.js";
import { number, seconds } from "../format.js";
import { link } from "./overview_sessions.js";
import { Call } from "./run_call.js";
import { operationsOf } from "./run_calls.js";
import { hasEnded, own } from "./run_thread.js";
import { TAGS, dollars } from "./turn_view.js";

const Message = ({ text, waits }) => html`<div class="said user"><h3>user ${waits && html`<span class="hint">${waits}</span>`}</h3>
  <p class="text"><${Raw} text=${text} /></p></div>`;

/** Messages that no run has taken in yet. */
export const Waiting = ({ texts, until }) => texts.map((text, at) => html`<${Message} key=${`${at} ${text}`} text=${text} waits=${until} />`);

/** The first call without a result is the one that goes on: calls are done one after the other. */
function Tick({ entry, operations: { model, calls }, running, run, approvals }) {
  const now = entry.calls.find((call) => call.result === null);
  const state = (call) => (!running ? "no result" : call !== now ? "waits" : approvals ? "waits for approval" : "runs");
  return html`<div class="said model"><h3>tick ${entry.tick} <span class="hint">${model && html`
      ${model.tokens_used != null && `${number(model.tokens_used)} tokens`}${model.duration_ms != null && ` · ${seconds(model.duration_ms / 1000)}`}`}</span></h3>
    ${entry.text && html`<${Markdown} text=${entry.text} />`}
    ${!entry.text && !entry.calls.length && html`<p class="hint">${running ? "The model answers." : "It said nothing."}</p>`}
    ${entry.calls.map((call, at) => html`<${Call} key=${`${at} ${call.id}`} call=${call} operation=${calls[at]} state=${state(call)}>
      ${call.spawns.map((id) => html`<${Child} key=${id} run=${run} id=${id} />`)}
      ${running && call === now && approvals}<//>`)}</div>`;
}

/** A thread's entries; `approvals` are shown with the call that waits for them, or at the end. */
function Entries({ thread, run, operations, approvals }) {
  const running = !hasEnded(thread);
  const by = operationsOf({ entries: thread.entries, operations });
  const last = thread.entries.at(-1);
  const waiting = last?.kind === "tick" && last.calls.some((call) => call.result === null);
  return html`${thread.gone > 0 && html`<p class="hint">${number(thread.gone)} earlier entries are not kept by the page.</p>`}
    ${thread.entries.map((entry) => (entry.kind === "message" ? html`<${Message} key=${entry.at} text=${entry.text} />`
      : entry.kind === "spawn" ? html`<${Child} key=${entry.at} run=${run} id=${entry.spawn} />`
      : html`<${Tick} key=${entry.at} entry=${entry} operations=${by.get(entry.at)} running=${running && entry === last} run=${run}
          approvals=${entry === last ? approvals : null} />`))}
    ${!waiting && approvals}`;
}

const childState = ({ result, outcome }) => {
  if (!result) return outcome?.tag ?? "runs";
  return result.isError ? "failed" : outcome?.tag ?? "ended";
};
const CHILD_KINDS = { runs: "", failed: "bad", ended: "good", ...TAGS };

/** A child's thread, in that of its parent. */
function Child({ run, id }) {
  const thread = run.threads.get(id);
  if (!thread) return html`<p class="hint">The page does not keep this child's thread any more.</p>`;
  const { session, label, tokens, result, problem } = thread;
  const state = childState(thread);
  return html`<details class="child" open><summary><b><${Raw} text=${label || "child"} /></b>
      <${Badge} kind=${CHILD_KINDS[state]}>${state}<//> ${tokens != null && html`<span class="hint">${number(tokens)} tokens</span>`}</summary>
    <div class="nested-thread" role="group" aria-label="thread of ${label || session || "a child"}">
      ${session && html`<p class="hint">Session ${link(session)}</p>`}
      <${Entries} thread=${thread} run=${run} operations=${thread.operations} />
      ${!thread.entries.length && result?.text && html`<${Markdown} text=${result.text} />`}
      ${(result?.error ?? problem) && html`<p class="warning"><${Raw} text=${errorText(result?.error ?? problem)} /></p>`}</div></details>`;
}

/** An error is a text, or an object that has one. */
const errorText = (error) => (typeof error === "string" ? error : error.message ?? error.detail ?? JSON.stringify(error));

/** How a run ended. */
export function End({ outcome }) {
  const { tag, reason, message, error_type: type, need_type: need, description, metadata = {} } = outcome;
  const why = [reason?.replaceAll("-", " "), type, message, need?.replaceAll("-", " "), description].filter(Boolean);
  return html`<${Badge} kind=${TAGS[tag]}>${tag}<//> ${why.length > 0 && html`<span class="why-ended"><${Raw} text=${why.join(": ")} /></span>`}
    <span class="hint">${[metadata.tokens != null && `${number(metadata.tokens)} tokens`, metadata.cost_microdollars && dollars(metadata.cost_microdollars),
      metadata.time_ms != null && seconds(metadata.time_ms / 1000)].filter(Boolean).join(" · ")}</span>`;
}

/** `operations` are those on record of a run that goes on; `approvals` what waits for a person meanwhile. */
export function Run({ session, run, operations, approvals }) {
  const thread = own(run);
  const { outcome, problem } = thread;
  const turns = `#/sessions/${encodeURIComponent(session)}/turns`;
  return html`<section class="run" aria-label="run ${run.turn}">
    <${Entries} thread=${thread} run=${run} operations=${outcome ? thread.operations : operations} approvals=${approvals} />
    <${Waiting} texts=${run.waiting} until="queued: the run takes it in when the model calls no tool" />
    ${(outcome || problem) && html`<p class="run-end"><a href=${turns}>Turn ${run.turn}</a>
      ${outcome ? html`<${End} outcome=${outcome} />` : html`<${Badge} kind="bad">failed<//> <${Raw} text=${problem} />`}</p>`}</section>`;
}
