// Lines that wait for a person, and what was decided.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { get, withQuery } from "../api.js";
import { Badge, Empty, Failure, Loading, Raw, Table, Time, useLoaded } from "../parts.js";
import { useLive } from "../live.js";
import { ApprovalCard } from "./approval_card.js";
import { link } from "./overview_sessions.js";

const MOST = 200;

const STATUS = { approved: "good", denied: "bad" };
const DECIDED = [
  { name: "Tool", key: (approval) => approval.tool, show: (approval) => approval.tool },
  { name: "Line", key: (approval) => approval.command, show: (approval) => html`<code><${Raw} text=${approval.command} /></code>` },
  { name: "Session", key: (approval) => approval.session_id, show: (approval) => link(approval.session_id) },
  { name: "Decision", key: (approval) => approval.status, show: (approval) => html`<${Badge} kind=${STATUS[approval.status]}>${approval.status}<//>` },
  { name: "By", key: (approval) => approval.decided_by, show: (approval) => (approval.approvers > 1 ? approval.approved_by.join(", ") : approval.decided_by) || approval.decided_by || "–" },
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
    ${waiting.length ? html`<div class="stack">${waiting.map((approval) => html`<${ApprovalCard} key=${approval.id} approval=${approval} newest=${live.newest}
      focused=${approval.id === focused} onDecided=${done} />`)}</div>` : html`<${Empty}>Nothing waits. Lines of tools whose manifest asks for a person appear here.<//>`}
    <h2>Decided</h2>${error && html`<${Failure} error=${error} again=${reload} />`}
    ${list ? html`<${Table} label="decided approvals" columns=${DECIDED} of=${(approval) => approval.id}
      rows=${list.items.filter((approval) => approval.status !== "pending")} empty="Nothing was decided yet." />` : !error && html`<${Loading} what="decisions" />`}`;
}
