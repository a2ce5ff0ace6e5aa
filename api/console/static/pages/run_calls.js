// Arguments, output and decisions of a run's calls of tools, as the page shows them. Pure.

import { words } from "../format.js";

// Longer texts are collapsed at first.
const SHORT_CHARACTERS = 600;
const SHORT_LINES = 8;
// The note of the control plane in a text that is not whole.
const LEFT_OUT = /\n\[(\d+) (characters|bytes) are left out here[^\]\n]*\]\n/;
const REFUSED = /^Refused by ([\w-]+): /;
const SOME_LINES = /\[(\d+) lines in all\]$/;

/** The arguments as an object, or nothing if the model wrote none. */
function parsed(text) {
  try {
    const found = JSON.parse(text || "{}");
    return found && typeof found === "object" && !Array.isArray(found) ? found : null;
  } catch { return null; }
}

/** The command line that a call runs, if it is one. */
export function commandLine({ tool, arguments: text }) {
  const given = tool === "exec" ? parsed(text) : null;
  if (typeof given?.command === "string") return given.command;
  return Array.isArray(given?.argv) ? words(given.argv.map(String)) : null;
}

/** The subject of a call, in a line. */
export function subjectOf(call) {
  const given = parsed(call.arguments);
  if (!given) return call.arguments;
  const subject = commandLine(call) ?? given.path ?? given.query ?? given.text ?? given.label;
  return subject == null ? (Object.keys(given).length ? JSON.stringify(given) : "") : String(subject);
}

/** Whether that line has all that the call says. */
export function saysAll(call) {
  const given = parsed(call.arguments);
  if (!given) return false;
  return Object.keys(given).length < 2 && (commandLine(call) !== null || Object.values(given).every((value) => typeof value === "string"));
}

/** The arguments in full, for reading. */
export function shownArguments(call) {
  const given = parsed(call.arguments);
  return given ? JSON.stringify(given, null, 2) : call.arguments;
}

/** A result as `[{title, text, note}]`: the streams of a command, or the text. `exit` is its exit code. */
export function outputOf({ tool, result }) {
  const ran = tool === "exec" && result !== null ? parsed(result) : null;
  if (typeof ran?.stdout !== "string" || typeof ran.stderr !== "string") return { exit: null, parts: [noted("output", result ?? "")] };
  const parts = [noted("output", ran.stdout), noted("stderr", ran.stderr)].filter(({ text }) => text);
  return { exit: ran.exit_code, parts: parts.length ? parts : [noted("output", "")] };
}

function noted(title, text) {
  const [, cut, units] = LEFT_OUT.exec(text) ?? [];
  if (cut) return { title, text, note: `${cut} ${units} are left out` };
  const lines = SOME_LINES.exec(text);
  return { title, text, note: lines && `a part of ${lines[1]} lines` };
}

export function isLong({ arguments: given, result }) {
  const text = `${given}${result ?? ""}`;
  return text.length > SHORT_CHARACTERS || text.split("\n", SHORT_LINES + 1).length > SHORT_LINES;
}

/**
 * The operations of each tick, by the tick's `at`: `{model, calls}`. An operation is null where it is
 * not on record yet, or where it can't be told for sure whose it is.
 */
export function operationsOf({ entries, operations }) {
  const ticks = entries.filter((entry) => entry.kind === "tick");
  const found = groups(operations);
  // The oldest ticks may not be kept any more.
  const first = Math.max(0, found.length - ticks.length);
  return new Map(ticks.map((tick, at) => {
    const { model = null, rest = [] } = found[first + at] ?? {};
    return [tick.at, { model, calls: matched(tick.calls, rest) }];
  }));
}

/** Each answer of the model, with the operations that followed it. */
function groups(operations) {
  const found = [];
  for (const each of operations) {
    if (each.operation === "llm.complete") { if (!each.error) found.push({ model: each, rest: [] }); } else found.at(-1)?.rest.push(each);
  }
  return found;
}

/**
 * Each call is one operation, in order, or none if it was refused before. Results say which ones
 * were; as a file may say the same, that is believed only if the numbers agree.
 */
function matched(calls, operations) {
  const none = calls.map(() => null);
  const missing = calls.length - operations.length;
  if (missing === 0) return operations;
  const without = (call) => call.result?.startsWith("Refused: ") ?? false;
  const before = calls.filter(without).length;
  if (calls.some(({ result }) => result === null)) {
    // During a tick, the record may have one call more than the results.
    return before ? none : calls.map((_, at) => operations[at] ?? null);
  }
  if (before !== missing) return none;
  const rest = [...operations];
  return calls.map((call) => (without(call) ? null : rest.shift()));
}

/**
 * `{decision, failed, rule, said, remedy}` of a call that was answered; `decision` is allow, deny or
 * null. That a call was refused is believed of a result whose operation did not succeed: no file
 * wrote it.
 */
export function decisionOf({ result }, operation) {
  if (!operation) return { decision: null, failed: false };
  const { decision, error } = operation;
  if (!error) return { decision, failed: false };
  const rule = operation.rule ?? REFUSED.exec(result ?? "")?.[1];
  if (decision !== "deny" && !rule) return { decision, failed: true };
  const prefix = `Refused by ${rule}: ${error}. `;
  return { decision: "deny", failed: false, rule, said: error, remedy: result?.startsWith(prefix) ? result.slice(prefix.length) : null };
}
