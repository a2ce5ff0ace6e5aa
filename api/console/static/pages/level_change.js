// The question before a change of a session's level: what the change ends, and what it permits.

import { html, useRef, useState } from "../vendor/preact.js";
import { get, ofSession, withQuery } from "../api.js";
import { Confirm, Raw } from "../parts.js";
import { keptName } from "./kept_shells.js";
import { bytes, seconds, words } from "../format.js";

const MOST_NAMED = 12;
const NETWORKS = { none: "no network", egress: "the governed way out", open: "an open network" };

/** What a level permits, as `[of, permitted, worth]` rows; more is worth more. */
export const permissions = (level) => [
  ["Commands", level.commands ? `${level.commands.length} commands` : "any command", level.commands?.length ?? Infinity],
  ["Network", NETWORKS[level.network], ["none", "egress", "open"].indexOf(level.network)],
  ["Own programs", level.noexec ? "not executable" : "executable", Number(!level.noexec)],
  ["Readable", level.confinement.paths ? "workspace and programs" : "the whole image", Number(!level.confinement.paths)],
  ["Tools", `up to ${level.risk_tier} risk`, ["low", "medium", "high"].indexOf(level.risk_tier)],
  ["CPU", `${level.limits.cpus}`, level.limits.cpus],
  ["Memory", bytes(level.limits.memory_bytes), level.limits.memory_bytes],
  ["Processes", `${level.limits.pids}`, level.limits.pids],
  ["Workspace", bytes(level.limits.workspace_bytes), level.limits.workspace_bytes],
  ["A command's time", `up to ${seconds(level.timeout_max).replace(/ 0 (s|min)$/, "")}`, level.timeout_max],
];

/** The rows in which a level permits more than another. */
function gained(from, to) {
  const before = permissions(from);
  return permissions(to).map((row, at) => [row[0], before[at][1], row[1], row[2] > before[at][2]]).filter((row) => row[3]);
}

const named = (terminal) => (terminal.kind === "shell" ? { kind: "shell", name: keptName(terminal) ?? "" } : { kind: "terminal", name: terminal.tool });

/** What runs in the session now, as `{key, kind, name}`: a change ends all of it. */
export async function running(id) {
  const [session, terminals] = await Promise.all([get(ofSession(id)), get(ofSession(id, "ptys"))]);
  const { iterations = 0 } = session.budget.consumed;
  const turns = iterations ? await get(withQuery(ofSession(id, "turns"), { after: iterations - 1 })) : { items: [] };
  return [
    ...turns.items.filter(({ status }) => status === "running").map(({ turn_number: turn }) => ({ key: `turn ${turn}`, kind: "turn", name: `${turn}` })),
    ...session.commands.filter(({ status }) => status === "running").map(({ command_id: key, argv }) => ({ key, kind: "command", name: words(argv) })),
    ...terminals.items.filter(({ ended_at: ended }) => !ended).map((terminal) => ({ key: terminal.id, ...named(terminal) })),
  ];
}

/** What runs now, if that is more than what a person was asked about; or null. */
async function more(id, ends) {
  const known = new Set(ends.map(({ key }) => key));
  const now = await running(id);
  return now.some(({ key }) => !known.has(key)) ? now : null;
}

/**
 * Asks before a change that permits more, or ends something: `ends` is what `running` has found. What has begun since
 * then is asked about again.
 */
export function ConfirmLevel({ session, from, to, ends: first, onYes, onNo, onFailure }) {
  const [{ ends, again }, setFound] = useState({ ends: first });
  const looking = useRef(false);
  const rises = from && to.rank > from.rank;
  async function confirm() {
    if (looking.current) return;
    looking.current = true;
    try {
      const found = await more(session, ends);
      if (found) setFound({ ends: found, again: true });
      else onYes();
    } catch (error) { onFailure(error); }
    looking.current = false;
  }
  return html`<${Confirm} title=${rises ? `Raise to ${to.name}?` : `Change to ${to.name}?`} yes=${rises ? "Raise" : "Change"} onYes=${confirm} onNo=${onNo}>
    ${again && html`<p class="rule" role="alert">More has begun since you were asked.</p>`}
    ${rises && html`<p>It will permit more:</p><dl>${gained(from, to).map(([of, before, after]) => html`<dt>${of}</dt><dd>${before} → <b>${after}</b></dd>`)}</dl>`}
    ${ends.length ? html`<p>The sandbox is replaced. This is ended:</p><ul class="ends">${ends.slice(0, MOST_NAMED).map(({ key, kind, name }) => html`<li key=${key}>${kind} <code><${Raw} text=${name} /></code></li>`)}
        ${ends.length > MOST_NAMED && html`<li>and ${ends.length - MOST_NAMED} more</li>`}</ul><p>The workspace stays.</p>`
      : html`<p>The sandbox is replaced. Nothing runs in it now; the workspace stays.</p>`}<//>`;
}
