// Lines that wait for a person.

import { html, useEffect, useState } from "../vendor/preact.js";
import { get, ofSession, request, send } from "../api.js";
import { Badge, Empty, Failure, Loading, Raw, Table, Time, useLoaded } from "../parts.js";
import { useLive } from "../live.js";
import { link } from "./overview.js";

const RISK = { low: "good", medium: "warn", high: "bad", critical: "bad" };
const SHOWN_BEFORE = 2000;

/** What the terminal shows now: the end of its transcript. */
function Before({ approval }) {
  const path = ofSession(approval.session_id, "ptys", approval.terminal_id, "transcript");
  const [text] = useLoaded(async () => (await request("GET", path)).text(), [path]);
  return text ? html`<details><summary>What the terminal shows</summary><pre><${Raw} text=${text.slice(-SHOWN_BEFORE)} /></pre></details>` : null;
}

function Waiting({ approval, onDecided }) {
  const [reason, setReason] = useState("");
  const [error, setError] = useState(null);
  const decide = (decision) => send("POST", `/api/approvals/${encodeURIComponent(approval.id)}`,
    { decision, reason: reason || null }).then(onDecided, setError);
  const key = (event) => {
    if (event.target.tagName === "INPUT" && event.key !== "Enter") return;
    if (event.key === "a") decide("approve");
    if (event.key === "d") decide("deny");
  };
  return html`<section class="card" tabindex="0" onKeyDown=${key} aria-label="approval of ${approval.tool}">
    <h2>${approval.tool} <${Badge} kind=${RISK[approval.risk_tier]}>${approval.risk_tier}<//></h2>
    <pre><${Raw} text=${approval.command} /></pre>
    <p>${link(approval.session_id)}, asked by ${approval.requested_by} <${Time} at=${approval.requested_at} /></p>
    ${Object.entries(approval.files).map(([path, hash]) => html`<p><code><${Raw} text=${path} /></code> <span class="mono">${hash}</span></p>`)}
    ${approval.terminal_id && html`<${Before} approval=${approval} />`}
    <label>Reason <input value=${reason} maxlength="1024" onInput=${(event) => setReason(event.target.value)} /></label>
    <p class="actions"><button class="primary" onClick=${() => decide("approve")}>Approve (a)</button>
      <button class="danger" onClick=${() => decide("deny")}>Deny (d)</button></p>
    ${error && html`<${Failure} error=${error} />`}</section>`;
}

const DECIDED = [
  { name: "Tool", key: (approval) => approval.tool, show: (approval) => approval.tool },
  { name: "Line", key: (approval) => approval.command, show: (approval) => html`<code><${Raw} text=${approval.command} /></code>` },
  { name: "Session", key: (approval) => approval.session_id, show: (approval) => link(approval.session_id) },
  { name: "Decision", key: (approval) => approval.status, show: (approval) => approval.status },
  { name: "By", key: (approval) => approval.decided_by, show: (approval) => approval.decided_by ?? "–" },
  { name: "Reason", key: (approval) => approval.reason, show: (approval) => html`<${Raw} text=${approval.reason ?? ""} />` },
  { name: "When", key: (approval) => approval.decided_at, show: (approval) => html`<${Time} at=${approval.decided_at} />` },
];

function notify(count) {
  if (count > 0 && document.hidden && globalThis.Notification?.permission === "granted") {
    new Notification("Paddock", { body: `${count} waiting for approval`, tag: "approvals" });
  }
}

export function Approvals({ live }) {
  useLive(live);
  const [list, error, reload] = useLoaded(() => get("/api/approvals?limit=200"), [live.approvals]);
  const [permission, setPermission] = useState(globalThis.Notification?.permission);
  useEffect(() => notify(live.approvals), [live.approvals]);
  if (!list) return error ? html`<${Failure} error=${error} again=${reload} />` : html`<${Loading} what="approvals" />`;
  const waiting = list.items.filter((approval) => approval.status === "pending");
  return html`<h1>Approvals</h1>
    ${permission === "default" && html`<p><button onClick=${() => Notification.requestPermission().then(setPermission)}>Notify me</button></p>`}
    ${waiting.length ? waiting.map((approval) => html`<${Waiting} key=${approval.id} approval=${approval} onDecided=${reload} />`)
      : html`<${Empty}>Nothing waits.<//>`}
    <h2>Decided</h2><${Table} label="decided approvals" columns=${DECIDED} of=${(approval) => approval.id}
      rows=${list.items.filter((approval) => approval.status !== "pending")} empty="Nothing was decided yet." />`;
}
