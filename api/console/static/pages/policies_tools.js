// The operator's tools: the commands of each manifest, and what a level permits of them.

import { html, useState } from "../vendor/preact.js";
import { get, withQuery } from "../api.js";
import { Badge, Choice, Empty, Failure, Loading, Raw, useLoaded } from "../parts.js";
import { number } from "../format.js";

const RISK = { info: "good", low: "good", medium: "warn", high: "bad", critical: "bad" };

const words = ({ properties, required = [] }) => Object.keys(properties ?? {})
  .map((name) => (required.includes(name) ? name : `[${name}]`)).join(" ");

function byTool(commands) {
  const found = new Map();
  for (const command of commands) found.set(command.tool, [...(found.get(command.tool) ?? []), command]);
  return found;
}

function Manifest({ name, commands }) {
  const allowed = commands.filter((command) => command.allowed).length;
  return html`<details class="card manifest"><summary><b><${Raw} text=${name} /></b>
      <span class="hint">${number(allowed)} of ${number(commands.length)} ${commands.length === 1 ? "command" : "commands"} permitted</span>
      <code class="hint" title=${commands[0].sha256}>${commands[0].sha256.slice(0, 12)}</code></summary>
    <ul class="rows">${commands.map((command) => html`<li key=${command.name}><span class="grow"><b><${Raw} text=${command.command || command.tool} /></b>
        <${Badge} kind=${RISK[command.risk_tier]}>${command.risk_tier}<//> ${command.human_approval && html`<${Badge} kind="warn">asks a person<//>`}
        <span class="line"><${Raw} text=${command.description} /></span>
        <code class="line"><${Raw} text=${command.pattern || words(command.input_schema)} /></code></span>
      <span class="side">${command.allowed ? html`<${Badge} kind="good">permitted<//>` : html`<${Badge} kind="bad">${command.rule}<//>`}</span></li>`)}</ul></details>`;
}

export function Tools({ levels }) {
  const [level, setLevel] = useState(levels.at(-1));
  const [list, error, reload] = useLoaded(() => get(withQuery("/api/tools", { level })), [level]);
  const tools = byTool(list?.items ?? []);
  return html`<section aria-label="tools"><div class="head"><h2>Tools</h2><div class="controls">
      <${Choice} label="Permitted at" value=${level} among=${levels} onChoose=${setLevel} /></div></div>
    ${error && html`<${Failure} error=${error} again=${reload} />`}
    ${!list && !error && html`<${Loading} what="tools" />`}
    ${list && !tools.size && html`<${Empty}>There is no tool. Manifests are files in PADDOCK_TOOLS_DIR.<//>`}
    <div class="stack">${[...tools].map(([name, commands]) => html`<${Manifest} key=${name} name=${name} commands=${commands} />`)}</div></section>`;
}
