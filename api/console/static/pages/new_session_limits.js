// The limits and the budget of a new session, in the units in which people think.

import { html } from "../vendor/preact.js";
import { number } from "../format.js";

const MIB = 1024 ** 2;
const MINUTE = 60;
// Each kind: its title, how many of the API's units one is, and whether the API takes fractions.
const LIMITS = [
  ["cpus", "CPU, cores", 1, true], ["memory_bytes", "Memory, MiB", MIB], ["pids", "Processes", 1],
  ["workspace_bytes", "Workspace, MiB", MIB], ["tmp_bytes", "Temporary files, MiB", MIB],
];
const BUDGET = [
  ["time", "Time, minutes", MINUTE, true], ["cpu_seconds", "CPU time, minutes", MINUTE, true], ["commands", "Commands", 1],
  ["iterations", "Turns", 1], ["tokens", "Tokens of models", 1], ["cost", "Cost of models, dollars", 1, true],
  ["output_bytes", "Output, MiB", MIB], ["egress_bytes", "Network traffic, MiB", MIB], ["audit_bytes", "Record, MiB", MIB],
];

/** What was typed, in the API's units; what is empty is left out. */
function amounts(kinds, typed) {
  const given = kinds.filter(([kind]) => typed[kind]);
  return Object.fromEntries(given.map(([kind, , unit, fractions]) => {
    const amount = Number(typed[kind]) * unit;
    return [kind, fractions ? amount : Math.round(amount)];
  }));
}

/** `{limits, budget}` of the request; what has no amount is not a member. */
export function limited({ limits, budget }) {
  const asked = { limits: amounts(LIMITS, limits), budget: amounts(BUDGET, budget) };
  return Object.fromEntries(Object.entries(asked).filter(([, given]) => Object.keys(given).length));
}

function Amounts({ title, kinds, typed, change, placeholder }) {
  return html`<fieldset class="bare"><legend>${title}</legend><div class="fields">${kinds.map(([kind, name, unit]) => html`<label key=${kind}>${name}
    <input type="number" min="0" step="any" value=${typed[kind] ?? ""} placeholder=${placeholder(kind, unit)}
      onInput=${(event) => change({ ...typed, [kind]: event.target.value })} /></label>`)}</div></fieldset>`;
}

/** `level` is what the limits are bounded by. */
export const LimitsAndBudget = ({ level, given, change }) => html`<details class="more"><summary>Limits and budget</summary>
  <${Amounts} title="Limits" kinds=${LIMITS} typed=${given.limits} change=${(limits) => change({ ...given, limits })}
    placeholder=${(kind, unit) => (level ? `at most ${number(level.limits[kind] / unit)}` : "")} />
  <${Amounts} title="Budget: the session ends when one is used up" kinds=${BUDGET} typed=${given.budget} change=${(budget) => change({ ...given, budget })}
    placeholder=${(kind) => (kind === "audit_bytes" ? "of the level" : "no limit")} /></details>`;
