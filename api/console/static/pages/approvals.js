// Lines that wait for a person, and what was decided.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { get, ofSession, send, withQuery } from "../api.js";
import { Badge, Empty, Failure, Loading, Raw, Table, Time, useLoaded } from "../parts.js";
import { pieces } from "../format.js";
import { useLive } from "../live.js";
import { Screen } from "./approvals_screen.js";
import { link } from "./overview_sessions.js";

const RISK = { info: "good", low: "good", medium: "warn", high: "bad", critical: "bad" };
const MOST = 200;

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

function Waiting({ approval, live, focused, onDecided }) {
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
      <dt>Asked by</dt><dd><${Raw} text=${approval.requested_by} /></dd><${Matches} approval=${approval} />
      ${Object.entries(approval.files).map(([path, hash]) => html`<dt>With the file</dt><dd><code><${Raw} text=${path} /></code> <span class="mono hint">${hash}</span></dd>`)}</dl>
    ${approval.terminal_id && html`<${Screen} approval=${approval} newest=${live.newest} />`}
    <div class="decide"><label class="grow">Reason, on record <input value=${reason} maxlength="1024" onInput=${(event) => setReason(event.target.value)} /></label>
      <button class="primary" disabled=${busy} onClick=${() => decide("approve")}>Approve <kbd>a</kbd></button>
      <button class="danger" disabled=${busy} onClick=${() => decide("deny")}>Deny <kbd>d</kbd></button></div>
    ${error && html`<${Failure} error=${error} />`}</section>`;
}

const STATUS = { approved: "good", denied: "bad" };
const DECIDED = [
  { name: "Tool", key: (approval) => approval.tool, show: (approval) => approval.tool },
  { name: "Line", key: (approval) => approval.command, show: (approval) => html`<code><${Raw} text=${approval.command} /></code>` },
  { name: "Session", key: (approval) => approval.session_id, show: (approval) => link(approval.session_id) },
  { name: "Decision", key: (approval) => approval.status, show: (approval) => html`<${Badge} kind=${STATUS[approval.status]}>${approval.status}<//>` },
  { name: "By", key: (approval) => approval.decided_by, show: (approval) => approval.decided_by ?? "–" },
  { name: "Reason", key: (approval) => approval.reason, show: (approval) => html`<${Raw} text=${approval.reason ?? ""} />` },
  { name: "When", key: (approval) => approval.decided_at, show: (approval) => html`<${Time} at=${approval.decided_at} />` },
];

/** Shows a notification of the browser when more waits, and nobody looks at the page. */
export function useNotifications(live) {
  useLive(live);
  const before = useRef(0);
  useEffect(() => {
    const more = live.approvals > before.current;
    before.current = live.approvals;
    if (!more || !document.hidden || globalThis.Notification?.permission !== "granted") return;
    const note = new Notification("Paddock", { body: `${live.approvals} waiting for approval`, tag: "approvals" });
    note.onclick = () => { focus(); location.hash = "#/approvals"; };
  }, [live.approvals]);
}

function Notify() {
  const [permission, setPermission] = useState(globalThis.Notification?.permission);
  if (permission === "granted") return html`<p class="hint">The browser notifies you while this tab is in the background.</p>`;
  if (permission !== "default") return null;
  return html`<button onClick=${() => Notification.requestPermission().then(setPermission)}>Notify me in the browser</button>`;
}

export function Approvals({ live, query }) {
  useLive(live);
  const waiting = live.pending;
  const [list, error, reload] = useLoaded(() => get(withQuery("/api/approvals", { limit: MOST })), [live.approvals, waiting[0]?.id]);
  const [decided, setDecided] = useState(false);
  if (!live.loaded) return live.error ? html`<${Failure} error=${live.error} again=${() => location.reload()} />` : html`<${Loading} what="approvals" />`;
  const done = async () => { setDecided(true); await live.countApprovals(); live.changed({}); reload(); };
  const focused = query.get("id") ?? (decided ? waiting[0]?.id : null);
  return html`<div class="head"><h1>Approvals</h1><${Notify} /></div>
    ${waiting.length > 0 && html`<p class="hint">Tab to a card, then <kbd>a</kbd> approves and <kbd>d</kbd> denies it.</p>`}
    ${waiting.length ? html`<div class="stack">${waiting.map((approval) => html`<${Waiting} key=${approval.id} approval=${approval} live=${live}
      focused=${approval.id === focused} onDecided=${done} />`)}</div>` : html`<${Empty}>Nothing waits. Lines of tools whose manifest asks for a person appear here.<//>`}
    <h2>Decided</h2>${error && html`<${Failure} error=${error} again=${reload} />`}
    ${list ? html`<${Table} label="decided approvals" columns=${DECIDED} of=${(approval) => approval.id}
      rows=${list.items.filter((approval) => approval.status !== "pending")} empty="Nothing was decided yet." />` : !error && html`<${Loading} what="decisions" />`}`;
}
