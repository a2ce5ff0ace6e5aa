// The levels side by side, and what they would decide.

import { html, useState } from "../vendor/preact.js";
import { get, send } from "../api.js";
import { Badge, Choice, Failure, Loading, Raw, useLoaded } from "../parts.js";
import { bytes, seconds } from "../format.js";

const yes = (value) => (value ? "yes" : "no");
const ROWS = [
  ["Commands", (level) => (level.commands ? level.commands.join(" ") : "any")],
  ["Network", (level) => level.network],
  ["CPUs", (level) => level.limits.cpus],
  ["Memory", (level) => bytes(level.limits.memory_bytes)],
  ["Processes", (level) => level.limits.pids],
  ["Workspace", (level) => bytes(level.limits.workspace_bytes)],
  ["Time-out", (level) => `${seconds(level.timeout_default)}, at most ${seconds(level.timeout_max)}`],
  ["Output kept", (level) => bytes(level.output_bytes)],
  ["Own programs", (level) => yes(!level.noexec)],
  ["Paths confined", (level) => yes(level.confinement.paths)],
  ["Riskiest tool", (level) => level.risk_tier],
  ["Mounts", (level) => level.mounts.join(", ") || "none"],
  ["Images", (level) => level.images?.join(", ") ?? "any on the list"],
  ["When idle", (level) => level.idle_action],
];

function Explain({ levels }) {
  const [level, setLevel] = useState(levels[0].name);
  const [command, setCommand] = useState("");
  const [answer, setAnswer] = useState(null);
  const [error, setError] = useState(null);
  const ask = (event) => {
    event.preventDefault();
    setError(null);
    send("POST", "/api/policies/explain", { level, command }).then(setAnswer, (failed) => { setAnswer(null); setError(failed); });
  };
  return html`<form class="filters" onSubmit=${ask}>
      <${Choice} label="Level" value=${level} among=${levels.map((each) => each.name)} onChoose=${setLevel} />
      <label>Command <input required value=${command} placeholder="curl https://example.com" onInput=${(event) => setCommand(event.target.value)} /></label>
      <button class="primary">Explain</button></form>
    ${error && html`<${Failure} error=${error} />`}
    ${answer && html`<section class="card" role="status"><p><${Badge} kind=${answer.allow ? "good" : "bad"}>${answer.verdict}<//>
      <code>${answer.rule}</code> <${Raw} text=${answer.message} /></p>
      ${answer.layers.length > 0 && html`<dl>${answer.layers.map((layer) => html`<dt>${layer.layer}</dt>
        <dd><${Raw} text=${layer.message} /><br /><em>${layer.remedy}</em></dd>`)}</dl>`}</section>`}`;
}

export function Policies() {
  const [list, error] = useLoaded(() => get("/api/policies"), []);
  if (!list) return error ? html`<${Failure} error=${error} />` : html`<${Loading} what="levels" />`;
  return html`<h1>Policies</h1><h2>What would be decided?</h2><${Explain} levels=${list.items} />
    <h2>Levels</h2><div class="scroll" tabindex="0" role="region" aria-label="levels"><table>
      <thead><tr><th scope="col">Level</th>${list.items.map((level) => html`<th scope="col"><${Badge} kind="level-${level.name}">${level.name}<//></th>`)}</tr></thead>
      <tbody>${ROWS.map(([title, show]) => html`<tr><th scope="row">${title}</th>${list.items.map((level) => html`<td>${show(level)}</td>`)}</tr>`)}</tbody>
    </table></div>`;
}
