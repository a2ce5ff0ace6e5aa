// The machines of a cluster: what they have, what is used of it, and whether they get new sessions.

import { html, useEffect, useState } from "../vendor/preact.js";
import { get, send } from "../api.js";
import { Meter } from "../charts.js";
import { Badge, Confirm, Failure, Loading, Raw, Table, useLoaded } from "../parts.js";
import { bytes, number, seconds } from "../format.js";

const EVERY_MS = 5000;
const KINDS = { ready: "good", draining: "warn", gone: "bad" };
const text = (labels) => Object.entries(labels).map((pair) => pair.join("=")).sort().join(", ");

const State = ({ node }) => html`<${Badge} kind=${KINDS[node.state]}>${node.state}<//>${
  !node.alive && html` <${Badge} kind="bad">silent<//>`}`;

const Used = ({ label, used, limit, show = number }) => html`<${Meter} label=${label} used=${used} limit=${limit}>
  ${show(used)} <span class="hint">of ${show(limit)}</span><//>`;

const columns = (onChange) => [
  { name: "Node", key: (node) => node.name, show: (node) => html`<b><${Raw} text=${node.name} /></b>` },
  { name: "State", key: (node) => node.state, show: (node) => html`<${State} node=${node} />` },
  { name: "Last heard", key: (node) => node.silent_seconds, show: (node) => html`${seconds(node.silent_seconds)} ago` },
  { name: "Sandboxes", key: (node) => node.used.sandboxes, show: (node) => html`<${Used} label="sandboxes of ${node.name}" used=${node.used.sandboxes} limit=${node.capacity.sandboxes} />` },
  { name: "Cores", key: (node) => node.used.cpus, show: (node) => html`<${Used} label="cores of ${node.name}" used=${node.used.cpus} limit=${node.capacity.cpus} />` },
  { name: "Memory", key: (node) => node.used.memory_bytes, show: (node) => html`<${Used} label="memory of ${node.name}" used=${node.used.memory_bytes} limit=${node.capacity.memory_bytes} show=${bytes} />` },
  { name: "Labels", key: (node) => text(node.labels), show: (node) => html`<${Raw} text=${text(node.labels) || "–"} />` },
  { name: "Version", key: (node) => node.version, show: (node) => html`<${Raw} text=${node.version} />` },
  { name: "", show: (node) => html`<span class="actions">${node.state === "draining"
    ? html`<button class="small" aria-label="Undrain ${node.name}" onClick=${() => onChange(node, "undrain")}>Undrain</button>`
    : html`<button class="small" aria-label="Drain ${node.name}" onClick=${() => onChange(node, "drain")}>Drain</button>`}
    ${!node.alive && html`<button class="danger small" aria-label="Forget ${node.name}" onClick=${() => onChange(node, "forget")}>Forget</button>`}</span>` },
];

export function Nodes() {
  const [list, error, reload] = useLoaded(() => get("/api/nodes"), []);
  const [forgetting, setForgetting] = useState(null);
  const [failed, setFailed] = useState(null);
  useEffect(() => {
    const timer = setInterval(reload, EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  async function change({ name }, what) {
    setForgetting(null);
    setFailed(null);
    try { await send("POST", `/api/nodes/${encodeURIComponent(name)}/${what}`, {}); } catch (problem) { setFailed(problem); }
    reload();
  }
  const asked = (node, what) => (what === "forget" ? setForgetting(node) : change(node, what));
  if (!list) return html`<h1>Nodes</h1>${error ? html`<${Failure} error=${error} again=${reload} />` : html`<${Loading} what="nodes" />`}`;
  return html`<div class="head"><h1>Nodes</h1><span class="hint">machines of the cluster</span></div>
    ${error && html`<${Failure} error=${error} again=${reload} />`}${failed && html`<${Failure} error=${failed} />`}
    <${Table} label="nodes" columns=${columns(asked)} rows=${list.items} of=${(node) => node.name} empty="This server is one machine: it has no nodes." />
    ${forgetting && html`<${Confirm} title="Forget ${forgetting.name}?" yes="Forget" onYes=${() => change(forgetting, "forget")} onNo=${() => setForgetting(null)}>
      <p>Its sessions can't be reached any more, and their ids are free again. If the machine returns, it ends them.</p><//>`}`;
}
