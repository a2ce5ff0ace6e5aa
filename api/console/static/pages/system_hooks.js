// Hooks, how many of their messages wait, and those that were given up, which can be sent again.

import { html, useState } from "../vendor/preact.js";
import { get, request, withQuery } from "../api.js";
import { Badge, Failure, Loading, Raw, Table, Time, useLoaded } from "../parts.js";
import { number } from "../format.js";

const MOST_SHOWN = 100;
const at = (hook, ...rest) => ["/api/hooks", ...[hook, "deliveries", ...rest].map(encodeURIComponent)].join("/");

const columns = (onShow) => [
  { name: "Hook", key: (hook) => hook.id, show: (hook) => html`<code><${Raw} text=${hook.id} /></code>` },
  { name: "URL", key: (hook) => hook.url, show: (hook) => html`<${Raw} text=${hook.url} />` },
  { name: "Sessions of", key: (hook) => hook.key ?? "", show: (hook) => (hook.key ? html`<${Raw} text=${hook.key} />` : "all keys") },
  { name: "Events", key: (hook) => hook.events.join(), show: (hook) => html`<span class="hint">${hook.events.join(", ")}</span>` },
  { name: "Waiting", num: true, key: (hook) => hook.waiting, show: (hook) => (hook.lost ? html`<${Badge} kind="bad">secret lost<//>` : number(hook.waiting)) },
  { name: "Undelivered", num: true, key: (hook) => hook.undelivered, show: (hook) => (hook.undelivered
    ? html`<button class="small" aria-label="Show undelivered messages to ${hook.id}" onClick=${() => onShow(hook.id)}>${number(hook.undelivered)}</button>` : "0") },
];

const deliveryColumns = (onRetry) => [
  { name: "Event", key: (each) => each.type, show: (each) => each.type },
  { name: "Session", key: (each) => each.session, show: (each) => html`<a href="#/sessions/${encodeURIComponent(each.session)}"><${Raw} text=${each.session} /></a>` },
  { name: "Given up", key: (each) => each.tried_at, show: (each) => html`<${Time} at=${each.tried_at} />` },
  { name: "Why", key: (each) => each.error ?? "", show: (each) => html`<${Raw} text=${each.error} />` },
  { name: "", show: (each) => html`<button class="small" aria-label="Send ${each.id} again" onClick=${() => onRetry(each)}>Send again</button>` },
];

function Undelivered({ hook, onSent }) {
  const [found, error, reload] = useLoaded(() => get(withQuery(at(hook), { status: "undelivered", limit: MOST_SHOWN })), [hook]);
  const [failed, setFailed] = useState(null);
  async function retry(delivery) {
    setFailed(null);
    try { await request("POST", at(hook, delivery.id, "retry")); } catch (problem) { setFailed(problem); }
    reload();
    onSent();
  }
  return html`<h3>Undelivered to <code><${Raw} text=${hook} /></code></h3>${failed && html`<${Failure} error=${failed} />`}
    ${error ? html`<${Failure} error=${error} again=${reload} />` : found
      ? html`<${Table} label="undelivered messages" columns=${deliveryColumns(retry)} rows=${found.items} of=${(each) => each.id} empty="Every message is delivered, or tried again." />`
      : html`<${Loading} what="messages" />`}`;
}

export function Hooks() {
  const [hooks, error, reload] = useLoaded(() => get("/api/hooks"), []);
  const [shown, setShown] = useState(null);
  return html`<section><h2>Hooks</h2>${error ? html`<${Failure} error=${error} again=${reload} />` : hooks
    ? html`<${Table} label="hooks" columns=${columns(setShown)} rows=${hooks.items} of=${(hook) => hook.id} empty="There are no hooks that you may see." />`
    : html`<${Loading} what="hooks" />`}${shown && html`<${Undelivered} hook=${shown} onSent=${reload} />`}</section>`;
}
