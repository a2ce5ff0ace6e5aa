// One staged change: a line that unfolds to its difference.

import { html, useState } from "../vendor/preact.js";
import { Badge, Raw } from "../parts.js";
import { bytes, number } from "../format.js";
import { Diff } from "./diff_view.js";

const [NEW, CHANGED, DELETED] = [["good", "new"], ["warn", "changed"], ["bad", "deleted"]];

const typeOf = ({ type, old_mode: before }) => (type === "delete" ? DELETED : before == null ? NEW : CHANGED);

const mode = ({ mode: after, old_mode: before }) =>
  (after && before && after !== before ? `${before} → ${after}` : after ?? before ?? "");

/** What a reviewer must know besides the difference, as `[kind, text]` badges. */
const warnings = (change) => [
  change.base_changed && ["bad", "the workspace has changed here"],
  change.replaces && ["bad", "replaces all that is there"],
  change.removes > 0 && ["bad", `removes ${number(change.removes)} entries`],
  change.binary && ["", "binary"],
  change.kind !== "file" && ["", change.kind],
].filter(Boolean);

const Fingerprints = ({ change }) => html`<dl>
  <dt>workspace</dt><dd class="mono">${change.expected_fingerprint ?? "–"}</dd>
  <dt>staged</dt><dd class="mono">${change.fingerprint ?? "–"}</dd></dl>`;

/** Why there is no difference to show. */
const without = ({ type, kind, binary, size }) =>
  (type === "delete" ? `A ${kind} that is removed.`
    : kind === "directory" ? "A directory."
    : binary ? `Binary content of ${bytes(size)}.` : `No lines to compare, in ${bytes(size)}.`);

function Unfolded({ change }) {
  return html`<div>
    ${change.renamed_from && html`<p>Renamed from <code><${Raw} text=${change.renamed_from} /></code>.</p>`}
    ${change.diff ? html`<${Diff} diff=${change.diff} path=${change.ref} />`
      : html`<p class="hint">${without(change)}</p>${change.kind !== "directory" && html`<${Fingerprints} change=${change} />`}`}
    ${change.diff_truncated && html`<p class="warning">The difference is longer than what is shown: look at the file before you commit it.</p>`}</div>`;
}

/** `chosen` and `onChoose` are for callers who may commit; `open` unfolds it. */
export function Change({ change, chosen, onChoose, open }) {
  const [unfolded, setUnfolded] = useState(Boolean(open));
  const [kind, word] = typeOf(change);
  return html`<li class="change">
    ${onChoose && html`<input type="checkbox" aria-label=${`choose ${change.ref}`} checked=${chosen} onChange=${() => onChoose(change.ref)} />`}
    <details open=${unfolded} onToggle=${(toggled) => setUnfolded(toggled.target.open)}>
      <summary><${Badge} kind=${kind}>${word}<//> <code class="grow"><${Raw} text=${change.ref} /></code>
        ${warnings(change).map(([of, text]) => html`<${Badge} key=${text} kind=${of}>${text}<//>`)}
        <span class="mono hint">${mode(change)}</span> <span class="num hint">${change.kind === "file" && change.type === "write" ? bytes(change.size) : ""}</span></summary>
      ${unfolded && html`<${Unfolded} change=${change} />`}</details></li>`;
}
