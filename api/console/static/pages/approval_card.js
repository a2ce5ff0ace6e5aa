// One line that waits for a person, with what is needed to decide.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { get, ofSession, send } from "../api.js";
import { Badge, Failure, Raw, Time, useLoaded } from "../parts.js";
import { pieces } from "../format.js";
import { Screen } from "./approvals_screen.js";
import { link } from "./overview_sessions.js";

const RISK = { info: "good", low: "good", medium: "warn", high: "bad", critical: "bad" };

/** How many characters of the text can't be seen, or change the direction of others. */
const hiddenIn = (text) => pieces(text).filter((piece) => piece.hidden).length;

/** The pattern that the line matches, and what the command is for. */
function Matches({ approval }) {
  const [tools] = useLoaded(() => get(ofSession(approval.session_id, "tools")), [approval.session_id]);
  const tool = tools?.items.find((each) => each.name === approval.tool);
  if (!tool) return null;
  return html`<dt>Matches</dt><dd>${tool.pattern ? html`<code><${Raw} text=${tool.pattern} /></code>` : "the words of a oneshot tool"}
    <div class="hint"><${Raw} text=${tool.description} /></div></dd>`;
}

/** `newest` is the latest event that is known; `focused` takes the focus. `onDecided` is called once it is decided. */
export function ApprovalCard({ approval, newest, focused, onDecided }) {
  const [reason, setReason] = useState("");
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const card = useRef(null);
  useEffect(() => { if (focused) card.current?.focus(); }, [focused]);
  const decide = async (decision) => {
    if (busy) return;
    setBusy(true);
    setError(null);
    try {
      await send("POST", `/api/approvals/${encodeURIComponent(approval.id)}`, { decision, reason: reason || null });
      onDecided();
    } catch (failed) { setError(failed); setBusy(false); }
  };
  const key = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || ["INPUT", "BUTTON", "A"].includes(event.target.tagName)) return;
    if (event.key === "a") decide("approve");
    if (event.key === "d") decide("deny");
  };
  const hidden = hiddenIn(approval.command);
  return html`<section class="card approval" tabindex="0" ref=${card} onKeyDown=${key} aria-label="approval of ${approval.tool}">
    <div class="head"><h2><${Raw} text=${approval.tool} /> <${Badge} kind=${RISK[approval.risk_tier]}>${approval.risk_tier} risk<//></h2>
      <span class="hint"><${Time} at=${approval.requested_at} /></span></div>
    <h3>Exactly this is sent</h3><pre class="exact"><${Raw} text=${approval.command} /></pre>
    ${hidden > 0 && html`<p class="warning">${hidden} ${hidden === 1 ? "character" : "characters"} that can't be seen, or that change the direction of the text, are shown as their codes.</p>`}
    <dl><dt>Session</dt><dd>${link(approval.session_id)} <span class="hint">of <${Raw} text=${approval.owner} /></span></dd>
      ${approval.approvers > 1 && html`<dt>Approvals</dt><dd>${approval.approved_by.length} of ${approval.approvers}${approval.approved_by.length > 0 && html`: <${Raw} text=${approval.approved_by.join(", ")} />`} <span class="hint">from people who did not ask</span></dd>`}
      <dt>Asked by</dt><dd><${Raw} text=${approval.requested_by} /></dd><${Matches} approval=${approval} />
      ${Object.entries(approval.files).map(([path, hash]) => html`<dt>With the file</dt><dd><code><${Raw} text=${path} /></code> <span class="mono hint">${hash}</span></dd>`)}</dl>
    ${approval.terminal_id && html`<${Screen} approval=${approval} newest=${newest} />`}
    <div class="decide"><label class="grow">Reason, on record <input value=${reason} maxlength="1024" onInput=${(event) => setReason(event.target.value)} /></label>
      <button class="primary" disabled=${busy} onClick=${() => decide("approve")}>Approve <kbd>a</kbd></button>
      <button class="danger" disabled=${busy} onClick=${() => decide("deny")}>Deny <kbd>d</kbd></button></div>
    ${error && html`<${Failure} error=${error} />`}</section>`;
}
