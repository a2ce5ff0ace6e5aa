// One call of a tool: a line that unfolds to its arguments, its decision and its output.

import { html, useState } from "../vendor/preact.js";
import { Badge, Decision, Raw } from "../parts.js";
import { seconds } from "../format.js";
import { decisionOf, isLong, outputOf, saysAll, shownArguments, subjectOf } from "./run_calls.js";

const Arguments = ({ call }) => html`<h3>arguments</h3>
  <pre tabindex="0" role="region" aria-label="arguments"><${Raw} text=${shownArguments(call)} /></pre>`;

const Output = ({ parts }) => parts.map(({ title, text, note }) => html`<h3 key=${title}>${title} ${note && html`<span class="cut">${note}</span>`}</h3>
  ${text ? html`<pre class="output ${title}" tabindex="0" role="region" aria-label=${title}><${Raw} text=${text} /></pre>` : html`<p class="hint">nothing</p>`}`);

const Refused = ({ verdict }) => html`<div class="why"><p><${Raw} text=${verdict.said} /></p>
  <p>Rule: <code class="rule"><${Raw} text=${verdict.rule} /></code></p>
  ${verdict.remedy && html`<p class="remedy">→ <${Raw} text=${verdict.remedy} /></p>`}</div>`;

/** `state` says what a call without a result does; `children` are beneath it also while it is folded. */
export function Call({ call, operation, state, children }) {
  const [chosen, choose] = useState(null);
  const verdict = decisionOf(call, operation);
  const { exit, parts } = outputOf(call);
  const open = chosen ?? !isLong(call);
  const toggle = (event) => { event.preventDefault(); choose(!open); };
  return html`<div class="call ${verdict.failed ? "failed" : verdict.decision ?? ""}"><details open=${open}>
    <summary onClick=${toggle}><span class="tool mono"><${Raw} text=${call.tool} /></span>
      <span class="mono subject"><${Raw} text=${subjectOf(call)} /></span>
      <${Decision} decision=${verdict.decision} />${verdict.failed && html`<${Badge} kind="warn">failed<//>`}
      ${verdict.rule && html`<code class="rule"><${Raw} text=${verdict.rule} /></code>`}
      ${exit != null && html`<${Badge} kind=${exit === 0 ? "" : "warn"}>exit ${exit}<//>`}
      ${call.result === null && html`<span class="hint">${state}</span>`}
      <span class="num hint">${operation?.duration_ms == null ? "" : seconds(operation.duration_ms / 1000)}</span></summary>
    ${open && html`<div class="unfolded">${!saysAll(call) && html`<${Arguments} call=${call} />`}
      ${verdict.decision === "deny" ? html`<${Refused} verdict=${verdict} />` : call.result !== null && html`<${Output} parts=${parts} />`}</div>`}
    </details>${children}</div>`;
}
