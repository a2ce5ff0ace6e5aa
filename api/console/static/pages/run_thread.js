// What a run says and does, as threads of entries, from its events or from the timeline. Pure.
//
// A run is `{turn, live, waiting, threads}`: `live` says that its events come in, `waiting` are
// messages that it has not taken in. `threads` has its own thread by "", and the one of each child by
// its spawn's id. A thread is `{entries, gone, turn, outcome, problem, tokens, operations}`, and of a
// child also `{session, label, call, result}`. Entries are, in order:
//   {at, kind: "message", text}
//   {at, kind: "tick", tick, text, calls: [{id, tool, arguments, result, spawns}]}
//   {at, kind: "spawn", spawn}, a child that no call has started.

// What a page keeps of one run; a long one loses its oldest entries.
const MOST_ENTRIES = 300;
const MOST_CALLS = 32;
const MOST_THREADS = 100;
const MOST_CHARACTERS = 4 * 1024 * 1024;
// Characters of one text, which the control plane limits, too.
const MOST_TEXT = 128 * 1024;
const OWN = "";

const thread = (members) => ({ entries: [], gone: 0, turn: null, outcome: null, problem: null, tokens: null, operations: [], ...members });

/** A run that begins with these messages; its number may not be known yet. */
export function newRun(turn, texts, live) {
  const run = { turn, live, waiting: [], next: 1, size: 0, threads: new Map([[OWN, thread({ turn })]]) };
  return texts.reduce((so, text) => added(so, OWN, { kind: "message", text }), run);
}

export const own = (run) => run.threads.get(OWN);
export const hasEnded = ({ outcome, problem, result }) => Boolean(outcome || problem || result);

/** The run after an event. */
export function heard(run, name, data) {
  const key = data.spawn_path?.at(-1) ?? OWN;
  // A child whose start was missed is not shown.
  if (!CHANGES[name] || !run.threads.has(key)) return run;
  return bounded(CHANGES[name](run, key, data));
}

/** The run after a message that it takes in when the model calls no tool. */
export const joined = (run, text) => ({ ...run, waiting: [...run.waiting, text] });

/** The runs, by turn, after entries of the timeline; those that are live know more already. */
export function withTimeline(runs, entries) {
  const found = new Map(runs);
  for (const entry of entries) {
    const run = found.get(entry.turn_number) ?? newRun(entry.turn_number, [], false);
    if (!run.live) found.set(entry.turn_number, bounded(stored(run, entry)));
  }
  return found;
}

/** The run with what its turn says of its end. */
export const withTurn = (run, { outcome, tokens_used: tokens, operations }) => changed(run, OWN, { outcome, tokens, operations });

const CHANGES = {
  start: (run, key, { turn_number: turn }) => changed(run, key, { turn }),
  tick: (run, key, { tick }) => added(key === OWN ? taken(run) : run, key, newTick(tick)),
  text: (run, key, { tick, text }) => inTick(run, key, tick, (entry) => ({ ...entry, text: joinedText(entry.text, text) })),
  tool_call: (run, key, { tick, ...call }) => inTick(run, key, tick, (entry) => ({ ...entry, calls: withCall(entry.calls, call) })),
  tool_result: (run, key, { tick, id, content }) => inTick(run, key, tick, (entry) => ({ ...entry, calls: answered(entry.calls, id, content) })),
  spawn_start: spawned,
  spawn_end: (run, key, { spawn_id: id, text, is_error, error, tokens_used: tokens = null }) =>
    (run.threads.has(id) ? changed(run, id, { result: { text: cut(text ?? ""), isError: Boolean(is_error), error }, tokens }) : run),
  end: (run, key, { outcome, tokens_used: tokens, operations }) => changed(run, key, { outcome, tokens, operations: operations ?? [] }),
  error: (run, key, { detail }) => changed(run, key, { problem: detail ?? "The run has failed." }),
};

const newTick = (tick, text = "", calls = []) => ({ kind: "tick", tick, text: cut(text), calls: calls.slice(0, MOST_CALLS).map(newCall) });
const newCall = ({ id, tool, arguments: given }) => ({ id, tool, arguments: cut(given), result: null, spawns: [] });
const withCall = (calls, call) => (calls.length < MOST_CALLS ? [...calls, newCall(call)] : calls);
const cut = (text) => (text.length > MOST_TEXT ? `${text.slice(0, MOST_TEXT)}\n[${MOST_TEXT} of ${text.length} characters]` : text);
const joinedText = (before, more) => (before.length < MOST_TEXT ? cut(before + more) : before);

/** The calls, of which the first one with that id and without a result has it. */
function answered(calls, id, content) {
  const at = calls.findIndex((call) => call.id === id && call.result === null);
  return at < 0 ? calls : calls.with(at, { ...calls[at], result: cut(content) });
}

/** A run goes on with what waits for it after a tick in which the model has called no tool. */
function taken(run) {
  const last = own(run).entries.findLast((entry) => entry.kind === "tick");
  if (!last || last.calls.length || !run.waiting.length) return run;
  return run.waiting.reduce((so, text) => added(so, OWN, { kind: "message", text }), { ...run, waiting: [] });
}

/** A child begins: beneath the call that has started it, or as an entry of its own. */
function spawned(run, key, { spawn_id: id, child_session_id: session, label, call_id: call }) {
  if (run.threads.has(id)) return run;
  const started = { ...run, threads: new Map(run.threads).set(id, thread({ session, label, call, result: null })) };
  const of = (entry) => entry.calls?.some((each) => call && each.id === call) ?? false;
  const at = run.threads.get(key).entries.findLastIndex(of);
  if (at < 0) return added(started, key, { kind: "spawn", spawn: id });
  return edited(started, key, at, (entry) => {
    // Endpoints may give several calls the same id, even in one tick.
    const which = Math.max(entry.calls.findIndex((each) => each.id === call && each.result === null), 0);
    const found = entry.calls[which];
    return { ...entry, calls: entry.calls.with(which, { ...found, spawns: [...found.spawns, id] }) };
  });
}

/** An entry of the timeline in the form of an event. */
function stored(run, { role, content, tool_calls: calls, tool_call_id: id }) {
  const ticks = own(run).entries.filter((entry) => entry.kind === "tick");
  if (role === "user") return added(run, OWN, { kind: "message", text: cut(content) });
  if (role === "assistant") {
    return added(run, OWN, newTick((ticks.at(-1)?.tick ?? 0) + 1, content, calls.map(({ name, ...call }) => ({ ...call, tool: name }))));
  }
  return ticks.length ? inTick(run, OWN, ticks.at(-1).tick, (entry) => ({ ...entry, calls: answered(entry.calls, id, content) })) : run;
}

const changed = (run, key, members) => ({ ...run, threads: new Map(run.threads).set(key, { ...run.threads.get(key), ...members }) });

function added(run, key, entry) {
  const { entries } = run.threads.get(key);
  const kept = { ...entry, at: run.next };
  return changed({ ...run, next: run.next + 1, size: run.size + sizeOf(kept) }, key, { entries: [...entries, kept] });
}

function edited(run, key, at, change) {
  const { entries } = run.threads.get(key);
  const after = change(entries[at]);
  return changed({ ...run, size: run.size + sizeOf(after) - sizeOf(entries[at]) }, key, { entries: entries.with(at, after) });
}

/** Changes the tick of that number, which begins if its own event was missed. */
function inTick(run, key, tick, change) {
  const at = run.threads.get(key).entries.findLastIndex((entry) => entry.kind === "tick");
  if (at >= 0 && run.threads.get(key).entries[at].tick === tick) return edited(run, key, at, change);
  const begun = added(run, key, newTick(tick));
  return edited(begun, key, begun.threads.get(key).entries.length - 1, change);
}

const sizeOf = ({ text = "", calls = [] }) =>
  256 + text.length + calls.reduce((sum, call) => sum + 256 + call.arguments.length + (call.result?.length ?? 0), 0);

/** The run without its oldest entries, if it is larger than a page keeps. */
function bounded(run) {
  let now = run;
  if (now.threads.size > MOST_THREADS) now = without(now, ended(now) ?? [...now.threads.keys()][1]);
  for (const [key, { entries }] of now.threads) {
    if (entries.length > MOST_ENTRIES) now = shortened(now, key, entries.length - MOST_ENTRIES);
  }
  while (now.size > MOST_CHARACTERS) {
    const key = yielding(now);
    if (key === null) break;
    now = shortened(now, key, 1);
  }
  return now;
}

/** The oldest child that has ended. */
const ended = (run) => [...run.threads].find(([key, each]) => key !== OWN && hasEnded(each))?.[0];

/** The thread to shorten: of a child that has ended, else the longest, else that of the oldest child. */
function yielding(run) {
  const threads = [...run.threads];
  const children = threads.filter(([key, { entries }]) => key !== OWN && entries.length);
  const over = children.find(([, each]) => hasEnded(each));
  if (over) return over[0];
  const [longest] = threads.sort(([, a], [, b]) => b.entries.length - a.entries.length);
  return longest[1].entries.length > 1 ? longest[0] : children[0]?.[0] ?? null;
}

function shortened(run, key, count) {
  const { entries, gone } = run.threads.get(key);
  const size = entries.slice(0, count).reduce((sum, entry) => sum + sizeOf(entry), 0);
  return changed({ ...run, size: run.size - size }, key, { entries: entries.slice(count), gone: gone + count });
}

function without(run, key) {
  const emptied = shortened(run, key, run.threads.get(key).entries.length);
  const threads = new Map(emptied.threads);
  threads.delete(key);
  return { ...emptied, threads };
}
