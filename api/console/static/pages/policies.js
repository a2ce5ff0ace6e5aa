// The levels side by side, what they would decide, and the tools that they permit.

import { html, useState } from "../vendor/preact.js";
import { get, send } from "../api.js";
import { Badge, Choice, Failure, Loading, Raw, useLoaded } from "../parts.js";
import { bytes, number, seconds } from "../format.js";
import { Tools } from "./policies_tools.js";

const yes = (value) => (value ? "yes" : "no");
const rate = (value) => (value == null ? "no limit" : `${bytes(value)}/s`);
const network = { none: "none", egress: "through the way out", open: "open, without the host" };
const reach = ({ network: kind, egress }) => {
  if (kind !== "egress") return "–";
  return egress.allow.map((rule) => rule.host ?? rule.cidr).join(", ") || "nothing yet";
};
const GROUPS = [
  ["May do", [
    ["Commands", (level) => (level.commands ? html`<details><summary>${number(level.commands.length)} commands</summary><code>${level.commands.join(" ")}</code></details>` : "any")],
    ["Network", (level) => network[level.network]], ["Reaches", reach],
    ["Runs its own programs", (level) => yes(!level.noexec)], ["Riskiest tool", (level) => level.risk_tier],
    ["Mounts", (level) => level.mounts.join(", ") || "none"], ["Images", (level) => level.images?.join(", ") ?? "any on the list"],
  ]],
  ["Limits", [
    ["CPUs", (level) => number(level.limits.cpus)], ["Memory", (level) => bytes(level.limits.memory_bytes)],
    ["Processes", (level) => number(level.limits.pids)], ["Workspace", (level) => bytes(level.limits.workspace_bytes)],
    ["/tmp", (level) => bytes(level.limits.tmp_bytes)], ["Disk writes", (level) => rate(level.rates.disk_write)],
    ["Time-out", (level) => `${seconds(level.timeout_default)}, at most ${seconds(level.timeout_max)}`],
    ["Output kept", (level) => bytes(level.output_bytes)], ["Audit record", (level) => bytes(level.audit_bytes)],
    ["When idle", (level) => (level.idle_action === "end" ? "it ends" : "it is suspended")],
  ]],
  ["Enforced by", [
    ["Paths confined", (level) => yes(level.confinement.paths)], ["Executions recorded", (level) => yes(level.confinement.record_execs)],
    ["Writable code", (level) => yes(level.confinement.writable_code)], ["Traces its children", (level) => yes(level.confinement.ptrace)],
    ["Landlock", (level) => (level.requires.landlock ? `version ${level.requires.landlock} or later` : "not needed")],
    ["File", (level) => html`<code title=${level.sha256}>${level.sha256.slice(0, 12)}</code>`],
  ]],
];

const KINDS = { command: ["Command", "curl https://example.com"], path: ["Path", "../etc/passwd"] };

function Answer({ answer }) {
  return html`<section class="answer ${answer.allow ? "good" : "bad"}" role="status" aria-label="the verdict">
    <p><b>${answer.allow ? "Allowed" : "Denied"}</b> by the rule <code>${answer.rule}</code></p><p><${Raw} text=${answer.message} /></p>
    ${answer.layers.length > 0 && html`<ol class="layers">${answer.layers.map((layer) => html`<li key=${layer.layer}><${Badge}>${layer.layer}<//>
      <div><${Raw} text=${layer.message} /><p class="remedy">${layer.remedy}</p></div></li>`)}</ol>`}</section>`;
}

function Explain({ levels, query }) {
  const [level, setLevel] = useState(query.get("level") ?? levels[0].name);
  const [kind, setKind] = useState(query.has("path") ? "path" : "command");
  const [text, setText] = useState(query.get("path") ?? query.get("command") ?? "");
  const [answer, setAnswer] = useState(null);
  const [error, setError] = useState(null);
  const ask = (event) => {
    event.preventDefault();
    setError(null);
    history.replaceState(null, "", `#/policies?${new URLSearchParams({ level, [kind]: text })}`);
    send("POST", "/api/policies/explain", { level, [kind]: text }).then(setAnswer, (failed) => { setAnswer(null); setError(failed); });
  };
  const [title, example] = KINDS[kind];
  return html`<section class="card" aria-label="explain"><h2>What would be decided?</h2>
    <form class="filters" onSubmit=${ask}>
      <${Choice} label="Level" value=${level} among=${levels.map((each) => each.name)} onChoose=${setLevel} />
      <${Choice} label="Of" value=${kind} among=${Object.keys(KINDS)} onChoose=${setKind} />
      <label class="grow">${title} <input required class="mono" value=${text} placeholder=${example} onInput=${(event) => setText(event.target.value)} /></label>
      <button class="primary">Explain</button></form>
    <p class="hint">By its words alone; nothing is run or recorded.</p>
    ${error && html`<${Failure} error=${error} />`}${answer && html`<${Answer} answer=${answer} />`}</section>`;
}

function Compared({ levels }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="levels"><table class="compared">
    <thead><tr><th scope="col">Level</th>${levels.map((level) => html`<th scope="col" key=${level.name}><${Badge} kind=${`level-${level.name}`}>${level.name}<//></th>`)}</tr></thead>
    ${GROUPS.map(([title, rows]) => html`<tbody key=${title}><tr class="group"><th colspan=${levels.length + 1} scope="rowgroup">${title}</th></tr>
      ${rows.map(([name, show]) => html`<tr key=${name}><th scope="row">${name}</th>${levels.map((level) => html`<td key=${level.name}>${show(level)}</td>`)}</tr>`)}</tbody>`)}
  </table></div>`;
}

export function Policies({ query }) {
  const [list, error, reload] = useLoaded(() => get("/api/policies"), []);
  if (!list) return error ? html`<${Failure} error=${error} again=${reload} />` : html`<${Loading} what="levels" />`;
  return html`<h1>Policies</h1><${Explain} levels=${list.items} query=${query} />
    <h2>Levels</h2><${Compared} levels=${list.items} /><${Tools} levels=${list.items.map((level) => level.name)} />`;
}
