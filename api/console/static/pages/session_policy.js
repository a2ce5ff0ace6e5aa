// The policy of a session's turns.

import { html } from "../vendor/preact.js";
import { Raw } from "../parts.js";
import { number } from "../format.js";

const listed = (words) => (words.length
  ? html`<code><${Raw} text=${words.join("  ")} /></code>` : "nothing");

const WRITES = { true: "are proposals, which the host commits", false: "are made at once" };

function models({ allow_complete: complete, allow_intent: intent, max_tokens_per_call: most }) {
  const calls = [complete && "llm.complete", intent && "llm.intent"].filter(Boolean);
  return calls.length ? `${calls.join(" and ")}, with up to ${number(most)} tokens per call` : "none";
}

const executions = (rules) => [
  rules.allow_shell_commands && "commands", rules.allow_network_calls && "commands with a network",
  rules.allow_subeval && "nested programs",
].filter(Boolean).join(", ") || "none";

/** Callers that may not see all of a policy see its name and digest. */
export function Policy({ policy }) {
  const { world_rules: world } = policy;
  const rows = [["name", policy.name ?? "the session's own"], ["digest", html`<code>${policy.sha256}</code>`]];
  if (world) {
    const refused = new Set(policy.denied_operations);
    rows.push(["operations", listed(policy.allowed_operations.filter((name) => !refused.has(name)))],
      ["reads", listed(world.read_patterns)], ["writes", world.read_only ? "nothing" : listed(world.write_patterns)],
      ["changes", world.read_only ? "none" : WRITES[world.proposal_mode]],
      ["models", models(policy.llm_rules)], ["executions", executions(policy.execution_rules)]);
  }
  return html`<dl>${rows.map(([of, value]) => html`<dt>${of}</dt><dd>${value}</dd>`)}</dl>`;
}
