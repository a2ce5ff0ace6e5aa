// What a session may do: its level, its way out, ports, tools, budget and limits.

import { html } from "../vendor/preact.js";
import { credential, get, ofSession } from "../api.js";
import { Badge, Bar, Empty, Failure, Loading, Raw, Table, Time, useLoaded } from "../parts.js";
import { bytes, number, seconds } from "../format.js";
import { LevelSelector } from "./level_selector.js";
import { Egress } from "./session_egress.js";
import { Policy } from "./session_policy.js";
import { Ports } from "./session_ports.js";

const SHOW = {
  time: seconds, cpu_seconds: seconds, output_bytes: bytes, audit_bytes: bytes, egress_bytes: bytes,
};

const Words = ({ rows }) => html`<dl>${rows.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;

function Sandbox({ sandbox }) {
  if (!sandbox) return html`<${Empty}>There is none now.<//>`;
  return html`<${Words} rows=${[
    ["image", html`<${Raw} text=${sandbox.image} />`], ["network", sandbox.network],
    ["mounts", sandbox.mounts.join(", ") || "none of the operator's"], ["start", sandbox.start],
    ["agent", sandbox.connected ? "connected" : "not connected"],
  ]} />`;
}

/** By what means the kernel or the system call filter enforces the level in its sandbox. */
const Means = ({ facilities }) => html`<h2>Enforced by</h2>${facilities
  ? html`<${Words} rows=${facilities.map((each) => [each.decides, each.detail])} />` : html`<${Empty}>There is no sandbox now.<//>`}`;

const volumes = ({ volumes: all }) => all.map(({ name, path, read_only: fixed }) => `${name} at ${path}${fixed ? ", read-only" : ""}`).join("; ");

const Given = ({ session }) => html`<${Words} rows=${[
  ["workspace", html`<code><${Raw} text=${session.workspace.root_dir} /></code>`],
  ["volumes", html`<${Raw} text=${volumes(session) || "none"} />`], ["secrets", session.secrets.join(", ") || "none"], ["role", html`<${Raw} text=${session.role} />`],
  ...(session.consume ? [["context pack", html`<${Raw} text=${session.consume.manifest_id} />`]] : []),
  ...(session.work_id ? [["work", html`<${Raw} text=${session.work_id} />`]] : []),
]} />`;

const Budget = ({ budget }) => html`${Object.keys(budget.consumed).map((kind) => html`<${Bar} key=${kind}
  label=${kind.replaceAll("_", " ")} used=${budget.consumed[kind]} limit=${budget.limits[kind]} show=${SHOW[kind] ?? number} />`)}`;

const Deadlines = ({ deadlines }) => html`<${Words} rows=${Object.entries(deadlines).map(([kind, at]) =>
  [kind.replace("_at", ""), at ? html`<${Time} at=${at} />` : "never"])} />`;

const TOOLS = [
  { name: "Tool", key: (tool) => tool.name, show: (tool) => html`<code class="name">${tool.name}</code>` },
  { name: "What it does", key: (tool) => tool.description, show: (tool) => html`<${Raw} text=${tool.description} />` },
  { name: "Risk", key: (tool) => tool.risk_tier, show: (tool) => html`<${Badge} kind="level-${tool.risk_tier}">${tool.risk_tier}<//>` },
  { name: "Person", key: (tool) => String(tool.human_approval), show: (tool) => (tool.human_approval ? "approves each line" : "") },
  { name: "Here", key: (tool) => tool.rule ?? "", show: (tool) => (tool.allowed ? html`<${Badge} kind="good">permitted<//>` : html`<${Badge} kind="bad">refused<//> <code>${tool.rule}</code>`) },
];

function Tools({ session }) {
  const [list, error] = useLoaded(() => get(ofSession(session.id, "tools")), [session.id, session.permission_level]);
  if (error) return html`<${Failure} error=${error} />`;
  if (!list) return html`<${Loading} what="tools" />`;
  const [permitted, refused] = [true, false].map((allowed) => list.items.filter((tool) => tool.allowed === allowed));
  const table = (label, rows) => html`<${Table} label=${label} columns=${TOOLS} rows=${rows} of=${(tool) => tool.name} empty="No tool is permitted here." />`;
  return html`${table("tools", permitted)}
    ${refused.length > 0 && html`<details class="more"><summary>${refused.length} commands of tools are refused here</summary>${table("refused tools", refused)}</details>`}`;
}

export function LevelAndPolicy({ session, reload }) {
  const own = credential().session;
  const [levels, error] = useLoaded(async () => (own ? [] : (await get("/api/policies")).items), [session.id]);
  if (error) return html`<${Failure} error=${error} />`;
  if (!levels) return html`<${Loading} what="levels" />`;
  const live = ["active", "paused"].includes(session.status);
  return html`${levels.length > 0 && html`<${LevelSelector} session=${session} levels=${levels} onChanged=${reload} />`}
    <section class="card policy"><h2>Policy of its turns</h2><${Policy} policy=${session.policy} /></section>
    <div class="two cards"><section class="card"><h2>Budget</h2><${Budget} budget=${session.budget} /></section>
      <section class="card"><h2>Sandbox</h2><${Sandbox} sandbox=${session.sandbox} />
        <${Means} facilities=${session.facilities} />
        <h2>Ends by itself</h2><${Deadlines} deadlines=${session.deadlines} />
        <h2>Given to it</h2><${Given} session=${session} /></section></div>
    <h2>Way out</h2>${live ? html`<${Egress} session=${session} />` : html`<${Empty}>The session has ended.<//>`}
    ${live && html`<h2>Ports</h2><${Ports} session=${session} />
    <h2>Tools</h2><${Tools} session=${session} />`}`;
}
