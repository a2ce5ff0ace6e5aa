// A session's runs: the conversation, what goes on, and a field for a message.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact.js";
import { credential, get, ofSession, withQuery } from "../api.js";
import { Empty, Failure, Loading, useLoaded } from "../parts.js";
import { useLive } from "../live.js";
import { ApprovalCard } from "./approval_card.js";
import { Conversation } from "./run_conversation.js";
import { RunLevel, fixed } from "./run_level.js";
import { own } from "./run_thread.js";
import { End, Run, Waiting } from "./run_view.js";
import { operationsIn } from "./turn_view.js";

const MOST_TICKS = 100;
// A reader this near to the end follows new entries.
const NEAR_PX = 60;

/** The session's runs, which are read again when its record says that they go on. */
function useConversation({ session, events }) {
  const [conversation] = useState(() => new Conversation(session.id));
  const latest = events.find((event) => event.turn != null || event.operation.startsWith("turn."))?.seq ?? 0;
  // Events of a run that this page has sent come by themselves.
  useEffect(() => { if (!conversation.running?.live) conversation.load(); }, [latest]);
  useEffect(() => () => conversation.close(), []);
  return useLive(conversation);
}

/** `[pending, reload]`: the approvals for which the session waits, for those who may decide. */
function useApprovals({ session, events }) {
  const { session: handle } = credential();
  const latest = events.find((event) => event.operation.startsWith("approval"))?.seq ?? 0;
  const [list, , reload] = useLoaded(
    async () => (handle ? [] : (await get(withQuery("/api/approvals", { session: session.id, status: "pending" }))).items), [session.id, latest]);
  return [list ?? [], reload];
}

const NoModel = () => html`<section class="card no-shell"><h2>No model is configured</h2>
  <p>A run needs a language model: any endpoint that speaks the protocol of OpenAI's chat completions.</p>
  <p>The operator names it in <code>PADDOCK_MODELS</code>, and starts the control plane again:</p>
  <pre tabindex="0" role="region" aria-label="an example of PADDOCK_MODELS">${`PADDOCK_MODELS='{"small": {
  "url": "http://127.0.0.1:11434/v1", "prices": {"input": 0, "output": 0}
}}'`}</pre></section>`;

/** What is said next. Enter sends, Shift+Enter begins a line. */
function Composer({ conversation, members, usable }) {
  const [text, setText] = useState("");
  const { running, sending } = conversation;
  const given = text.trim() !== "";
  const clear = (accepted) => { if (accepted) setText((now) => (now === text ? "" : now)); };
  const submit = async (event) => {
    event.preventDefault();
    if (given && !sending && usable) clear(await conversation.send([text], members));
  };
  const key = (event) => { if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event); };
  const interrupt = async () => clear(await conversation.interrupt(given ? text : null));
  const more = !running && (conversation.waiting.length > 0 || conversation.shown.length > 0);
  return html`<form class="composer" onSubmit=${submit}>
    <label class="grow">Message <textarea rows="2" value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${key}
      placeholder=${running ? "The run takes it in when the model calls no tool." : "What shall be done?"}></textarea></label>
    <p class="actions"><button class="primary" disabled=${!given || sending || !usable}>Send</button>
      ${running && html`<button type="button" class="danger" title="Ends the run and everything that runs in the session" onClick=${interrupt}>${
        given ? "Interrupt with this message" : "Interrupt the run"}</button>`}
      ${more && html`<button type="button" disabled=${sending || !usable} title="Runs the model without a new message" onClick=${() => conversation.render(members)}>Continue</button>`}
      <span class="hint"><kbd>Enter</kbd> sends, <kbd>Shift</kbd>+<kbd>Enter</kbd> begins a line.</span></p></form>`;
}

/** What is going on in a line, for those who listen to the page, too. */
function statusOf({ running, sending, shown }, waits) {
  if (running) {
    const tick = own(running).entries.findLast((entry) => entry.kind === "tick");
    const call = tick?.calls.find(({ result }) => result === null);
    return [`Run ${running.turn} goes on`, tick && `tick ${tick.tick}`, call?.tool, waits && "waits for approval"].filter(Boolean).join(", ");
  }
  if (sending) return "The message is sent.";
  const last = shown.at(-1);
  if (!last) return "";
  const { outcome } = own(last);
  return `Run ${last.turn} has ended: ${outcome ? [outcome.tag, outcome.reason, outcome.error_type].filter(Boolean).join(", ") : "failed"}`;
}

function Thread({ conversation, found, approvals, onDecided }) {
  const box = useRef(null);
  const follows = useRef(true);
  const scrolled = () => { const { scrollHeight, scrollTop, clientHeight } = box.current; follows.current = scrollHeight - scrollTop - clientHeight < NEAR_PX; };
  useLayoutEffect(() => { if (follows.current && box.current) box.current.scrollTop = box.current.scrollHeight; });
  const { running, shown, waiting, gone, loaded, error } = conversation;
  if (!loaded && error) return html`<${Failure} error=${error} again=${() => conversation.load()} />`;
  if (!loaded) return html`<${Loading} what="the timeline" />`;
  const newest = found.events[0] && { ...found.events[0], id: found.events[0].seq };
  const cards = approvals.length > 0 && html`<div class="stack inline-approvals">${approvals.map((approval) => html`<${ApprovalCard} key=${approval.id}
    approval=${approval} newest=${newest} onDecided=${onDecided} />`)}</div>`;
  return html`<div class="thread" role="log" aria-live="off" aria-label="runs" tabindex="0" ref=${box} onScroll=${scrolled}>
    ${gone > 0 && html`<p class="hint">Earlier runs are on the page of turns.</p>`}
    ${!shown.length && html`<${Empty}>Nothing has been said yet.<//>`}
    ${shown.map((run) => html`<${Run} key=${run.turn} session=${found.session.id} run=${run} operations=${operationsIn(found.events, run.turn)}
      approvals=${run === running && cards} />`)}
    ${!running && cards}
    <${Waiting} texts=${waiting} until="waits for the next run" /></div>`;
}

function Conversing({ found, levels, models }) {
  const { session } = found;
  const conversation = useConversation(found);
  const [approvals, decided] = useApprovals(found);
  const [model, setModel] = useState("");
  const [ticks, setTicks] = useState("10");
  const names = models.map(({ name }) => name);
  const most = Number(ticks);
  const usable = Number.isInteger(most) && most >= 1 && most <= MOST_TICKS;
  const members = { model: model || names[0], max_ticks: most };
  const { failed, refused } = conversation;
  return html`<section class="card run-head"><${RunLevel} session=${session} levels=${levels} onChanged=${found.refresh} />
      ${names.length > 0 && html`<label>Model <select value=${model || names[0]} onChange=${(event) => setModel(event.target.value)}>
        ${names.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></label>
      <label>Most ticks <input type="number" min="1" max=${MOST_TICKS} required value=${ticks} aria-invalid=${!usable}
        onInput=${(event) => setTicks(event.target.value)} /></label>`}</section>
    ${!names.length && html`<${NoModel} />`}
    <${Thread} conversation=${conversation} found=${found} approvals=${approvals} onDecided=${decided} />
    <p class="hint run-status" role="status">${statusOf(conversation, approvals.length > 0)}</p>
    ${failed && html`<${Failure} error=${failed} />`}
    ${refused && html`<p class="notice" role="alert">It did not run: <${End} outcome=${refused} /></p>`}
    ${session.status === "active" && names.length > 0 && html`<${Composer} conversation=${conversation} members=${members} usable=${usable} />`}
    ${session.status !== "active" && html`<${Empty}>A run needs an active session; this one is ${session.status}.<//>`}`;
}

export function SessionRun({ found }) {
  const { session } = found;
  const handle = credential().session;
  const [levels, failed, again] = useLoaded(async () => (handle ? [] : (await get("/api/policies")).items), [session.id]);
  const reads = levels && fixed(session, levels)?.startsWith("A viewer");
  const [models, error, reload] = useLoaded(async () => (!levels || reads ? null : (await get("/api/models")).items), [levels]);
  if (failed ?? error) return html`<${Failure} error=${failed ?? error} again=${() => { again(); reload(); }} />`;
  if (reads) {
    return html`<section class="card run-head"><${RunLevel} session=${session} levels=${levels} onChanged=${found.refresh} /></section>
      <${Empty}>Only those who work with the session see its conversation; a viewer's key reads its record.<//>`;
  }
  if (!models) return html`<${Loading} what="the models" />`;
  return html`<${Conversing} key=${session.id} found=${found} levels=${levels} models=${models} />`;
}
