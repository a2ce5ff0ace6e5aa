// The processes of a sandbox as a tree.

import { html } from "../vendor/preact.js";
import { Badge, Empty, Raw } from "../parts.js";
import { bytes, percent, seconds, words } from "../format.js";

/** The processes as `{process, depth}`, children below their parents. */
function inTree(processes) {
  const known = new Set(processes.map((process) => process.host_pid));
  const children = Map.groupBy(processes, (process) => (known.has(process.host_parent_pid) ? process.host_parent_pid : null));
  const seen = new Set();
  const below = (pid, depth) => (children.get(pid) ?? []).flatMap((process) => {
    if (seen.has(process.host_pid)) return [];
    seen.add(process.host_pid);
    return [{ process, depth }, ...below(process.host_pid, depth + 1)];
  });
  return below(null, 0);
}

const STATES = { running: "good", waiting: "warn", stopped: "warn", zombie: "bad" };

const Share = ({ label, of }) => html`<progress max="1" value=${Math.min(1, of)} aria-label=${label}></progress>`;

const Row = ({ process, depth, limits }) => html`<tr>
  <td class="num">${process.pid}</td>
  <td class="program"><span class="branch depth-${Math.min(depth, 12)}"><code><${Raw} text=${words(process.argv) || `[${process.name}]`} /></code>${process.pid === 1 && html` <${Badge}>sandbox agent<//>`}</span></td>
  <td><${Badge} kind=${STATES[process.state]}>${process.state}<//></td>
  <td class="num usage">${percent(process.cpu_percent)} <${Share} label="CPU" of=${process.cpu_percent / (limits.cpus * 100)} /></td>
  <td class="num">${seconds(process.cpu_seconds)}</td>
  <td class="num usage">${bytes(process.memory_bytes)} <${Share} label="memory" of=${process.memory_bytes / limits.memory_bytes} /></td></tr>`;

export function ProcessTree({ session }) {
  const { processes, limits } = session;
  if (!processes?.length) return html`<${Empty}>${processes ? "Nothing runs." : "There is no sandbox now, or the host does not show its processes."}<//>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="processes"><table><thead><tr>
      <th scope="col" class="num">PID</th><th scope="col">Program</th><th scope="col">State</th>
      <th scope="col" class="num">CPU</th><th scope="col" class="num">CPU time</th><th scope="col" class="num">Memory</th></tr></thead>
    <tbody>${inTree(processes).map(({ process, depth }) => html`<${Row} key=${process.host_pid} process=${process} depth=${depth} limits=${limits} />`)}</tbody></table></div>`;
}
