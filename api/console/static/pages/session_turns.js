// A session's turns as they run, and a form to run one.

import { html, useRef, useState } from "../vendor/preact.js";
import { get, ofSession, send, withQuery } from "../api.js";
import { Failure, Loading, useLoaded } from "../parts.js";
import { Outcome, Turns } from "./turn_view.js";

const PAGE = 20;
const ENDS = new Set(["turn.start", "turn.end"]);

/** All turns with higher numbers. */
async function later(id, number) {
  const found = [];
  for (let after = number; after != null;) {
    const page = await get(withQuery(ofSession(id, "turns"), { after, limit: PAGE }));
    found.push(...page.items);
    after = page.next;
  }
  return found;
}

/** `{turns, error, reload, earlier}`, newest first; loaded when one begins or ends. */
function useTurns({ session, events }) {
  // Each turn is one of the iterations, so the latest ones are loaded first.
  const first = useRef(Math.max(0, (session.budget.consumed.iterations ?? 0) - PAGE));
  const kept = useRef(new Map());
  const keep = (turns) => { for (const turn of turns) kept.current.set(turn.turn_number, turn); };
  const changed = events.find((event) => ENDS.has(event.operation))?.seq ?? 0;
  const [turns, error, reload] = useLoaded(async () => {
    const ended = [...kept.current.values()].filter((turn) => turn.status === "ended");
    keep(await later(session.id, Math.max(first.current, ...ended.map((turn) => turn.turn_number))));
    return [...kept.current.values()].sort((a, b) => b.turn_number - a.turn_number);
  }, [session.id, changed]);
  const earlier = first.current > 0 && (async () => {
    const after = Math.max(0, first.current - PAGE);
    keep((await get(withQuery(ofSession(session.id, "turns"), { after, limit: first.current - after }))).items);
    first.current = after;
    reload();
  });
  return { turns, error, reload, earlier };
}

/** Runs a program; `onEnd` is called with the turn. It goes on if the page is left. */
function Program({ session, running, onEnd }) {
  const [code, setCode] = useState("");
  const [busy, setBusy] = useState(false);
  const [failed, setFailed] = useState(null);
  const attempt = async (work) => {
    setFailed(null);
    try { await work(); } catch (error) { setFailed(error); }
  };
  const run = async (event) => {
    event.preventDefault();
    setBusy(true);
    await attempt(async () => onEnd(await send("POST", ofSession(session.id, "turns"), { code })));
    setBusy(false);
  };
  const interrupt = () => attempt(() => send("POST", ofSession(session.id, "interrupt")));
  return html`<form class="card program-form" onSubmit=${run}>
    <label>Program <textarea class="mono" rows="4" required spellcheck=${false} value=${code}
      placeholder=${'(world.read "README.md")'} onInput=${(event) => setCode(event.target.value)}></textarea></label>
    <p class="actions"><button class="primary" disabled=${busy || running}>Run</button>
      ${(busy || running) && html`<button type="button" title="Ends everything that runs in the session" onClick=${interrupt}>Interrupt the turn</button>`}
      <span class="hint" role="status">${busy || running ? "A turn runs." : "In Lisp; the policy decides about each operation."}</span></p>
    ${failed && html`<${Failure} error=${failed} />`}</form>`;
}

export function SessionTurns({ found }) {
  const { session, events } = found;
  const { turns, error, reload, earlier } = useTurns(found);
  const [ended, setEnded] = useState(null);
  if (!turns) return error ? html`<${Failure} error=${error} again=${reload} />` : html`<${Loading} what="turns" />`;
  const running = turns[0]?.status === "running";
  const end = (turn) => { setEnded(turn); reload(); };
  return html`${error && html`<${Failure} error=${error} again=${reload} />`}
    ${session.status === "active" && html`<${Program} session=${session} running=${running} onEnd=${end} />`}
    ${ended && ended.turn_number == null && html`<section class="card"><h2>It did not run</h2><${Outcome} outcome=${ended.outcome} /></section>`}
    <${Turns} session=${session} turns=${turns} events=${events} open=${ended?.turn_number} />
    ${earlier && html`<p class="actions"><button onClick=${earlier}>Earlier turns</button></p>`}`;
}
