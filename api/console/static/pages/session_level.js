// What a session may do: its level, budget and limits.

import { html, useState } from "../vendor/preact.js";
import { credential, get, ofSession, send } from "../api.js";
import { Bar, Confirm, Empty, Failure, Loading, Raw, Table, Time, useLoaded } from "../parts.js";
import { bytes, number, seconds } from "../format.js";

const SHOW = {
  time: seconds, cpu_seconds: seconds, output_bytes: bytes, audit_bytes: bytes, egress_bytes: bytes,
};
const NETWORKS = { none: "no network", egress: "the governed way out", open: "an open network" };

/** What a level permits, in a line. */
export const permits = (level) => [
  level.commands ? `${level.commands.length} commands` : "any command",
  NETWORKS[level.network], `${level.limits.cpus} CPU`, bytes(level.limits.memory_bytes),
  level.noexec ? "no programs of its own" : "programs of its own",
].join(", ");

function Selector({ session, levels }) {
  const [asked, setAsked] = useState(null);
  const [failed, setFailed] = useState(null);
  const [busy, setBusy] = useState(false);
  const rank = (name) => levels.find((level) => level.name === name)?.rank ?? 0;
  const raised = asked && rank(asked) > rank(session.permission_level);
  async function change(level) {
    setAsked(null);
    setFailed(null);
    setBusy(true);
    try { await send("PUT", ofSession(session.id, "settings"), { settings: { permission_level: level } }); } catch (error) { setFailed(error); }
    setBusy(false);
  }
  const choose = (level) => (rank(level) > rank(session.permission_level) ? setAsked(level) : change(level));
  const fixed = busy || credential().session || session.status !== "active";
  return html`<fieldset disabled=${fixed}><legend>Permission level ${busy ? "(changing)" : ""}</legend>
      ${levels.map((level) => html`<label class="choice"><input type="radio" name="level" checked=${level.name === session.permission_level}
        onChange=${() => choose(level.name)} /> <b>${level.name}</b> ${permits(level)}</label>`)}</fieldset>
    ${failed && html`<${Failure} error=${failed} />`}
    ${raised && html`<${Confirm} title="Raise to ${asked}?" yes="Raise" onYes=${() => change(asked)} onNo=${() => setAsked(null)}>
      <p>It will permit ${permits(levels.find((level) => level.name === asked))}. What runs now is ended.</p><//>`}`;
}

const RULES = [
  { name: "Rule", show: (rule) => html`<code><${Raw} text=${rule.host ?? rule.cidr} /></code>` },
  { name: "Ports", show: (rule) => rule.ports.join(", ") || "any" },
  { name: "Methods", show: (rule) => rule.methods.join(", ") || "any" },
  { name: "Paths", show: (rule) => html`<${Raw} text=${rule.paths.join(", ") || "any"} />` },
];

export function LevelAndPolicy({ session }) {
  const own = credential().session;
  const [levels, error] = useLoaded(async () => (own ? [] : (await get("/api/policies")).items), [session.id]);
  if (error) return html`<${Failure} error=${error} />`;
  if (!levels) return html`<${Loading} what="levels" />`;
  const level = levels.find((each) => each.name === session.permission_level);
  const kinds = Object.keys(session.budget.consumed);
  return html`<div class="two"><section>${levels.length > 0 && html`<${Selector} session=${session} levels=${levels} />`}
      <h2>Sandbox</h2>${session.sandbox ? html`<dl><dt>image</dt><dd><${Raw} text=${session.sandbox.image} /></dd>
        <dt>network</dt><dd>${session.sandbox.network}</dd><dt>start</dt><dd>${session.sandbox.start}</dd>
        <dt>mounts</dt><dd>${session.sandbox.mounts.join(", ") || "none"}</dd>
        <dt>agent</dt><dd>${session.sandbox.connected ? "connected" : "not connected"}</dd></dl>` : html`<${Empty}>There is none now.<//>`}
      <h2>Given to it</h2><dl><dt>tools</dt><dd>${session.tools?.join(", ") ?? "any that the level permits"}</dd>
        <dt>secrets</dt><dd>${session.secrets.join(", ") || "none"}</dd>
        <dt>workspace</dt><dd><code><${Raw} text=${session.workspace.root_dir} /></code></dd></dl></section>
    <section><h2>Budget</h2>${kinds.map((kind) => html`<${Bar} key=${kind} label=${kind} used=${session.budget.consumed[kind]}
        limit=${session.budget.limits[kind]} show=${SHOW[kind] ?? number} />`)}
      <h2>Ends by itself</h2><dl>${Object.entries(session.deadlines).map(([kind, at]) => html`
        <dt>${kind.replace("_at", "")}</dt><dd>${at ? html`<${Time} at=${at} />` : "never"}</dd>`)}</dl></section></div>
    ${level?.network === "egress" && html`<h2>The level's way out</h2>
      <${Table} label="allowed" columns=${RULES} rows=${level.egress.allow} of=${JSON.stringify} empty="It lists no hosts: nothing is allowed." />`}`;
}
