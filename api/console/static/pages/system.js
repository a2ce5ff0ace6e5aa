// The instance: its checks, its metrics, files that were read again, images and hooks.

import { html } from "../vendor/preact.js";
import { Problem, get, withQuery } from "../api.js";
import { Badge, Failure, Loading, Raw, Table, Time, useLoaded } from "../parts.js";
import { useLive } from "../live.js";
import { Hooks } from "./system_hooks.js";
import { Metrics } from "./system_metrics.js";

const KIND = { ok: "good", warning: "warn", failure: "bad" };
const ORDER = ["failure", "warning", "ok"];
const MOST_RELOADS = 50;
const IMAGES = [
  { name: "Image", key: (image) => image.name, show: (image) => html`<code><${Raw} text=${image.name} /></code>${image.default ? " (default)" : ""}` },
  { name: "State", key: (image) => image.problem ?? "", show: (image) => (image.available ? html`<${Badge} kind="good">available<//>` : html`<${Raw} text=${image.problem} />`) },
  { name: "Levels", key: (image) => image.levels.join(), show: (image) => image.levels.join(", ") },
];
const RELOADS = [
  { name: "When", key: (event) => event.time, show: (event) => html`<${Time} at=${event.time} />` },
  { name: "File", key: (event) => event.args.file, show: (event) => html`<code><${Raw} text=${event.args.file} /></code>` },
  { name: "State", key: (event) => event.error ?? "", show: (event) => (event.error ? html`<${Badge} kind="bad">not in force<//> <${Raw} text=${event.error} />` : html`<${Badge} kind="good">in force<//>`) },
];

/** The checks, which are also in the answer that says that sessions can't be created. */
async function readiness() {
  const response = await fetch("/readyz");
  if (!response.ok && response.status !== 503) throw new Problem(response.status, {});
  return response.json();
}

function Doctor() {
  const [ready, error, reload] = useLoaded(readiness, []);
  const failure = error && html`<${Failure} error=${error} again=${reload} />`;
  if (!ready) return failure ?? html`<${Loading} what="checks" />`;
  const checks = Object.entries(ready.checks).sort(([, a], [, b]) => ORDER.indexOf(a.status) - ORDER.indexOf(b.status));
  return html`<section aria-label="doctor"><div class="head"><h2>Doctor <${Badge} kind=${ready.status === "ready" ? "good" : "bad"}>${ready.status}<//></h2>
      <button onClick=${reload}>Check again</button></div>${failure}
    <ul class="checks">${checks.map(([name, check]) => html`<li key=${name} class=${KIND[check.status]}><b>${name}</b>
      <span><span class="sr">${check.status}: </span>${check.detail}${check.remedy && html`<span class="remedy">${check.remedy}</span>`}</span></li>`)}</ul></section>`;
}

function Reloads() {
  const [found, error, reload] = useLoaded(() => get(withQuery("/api/audit", { operation: "policy.reloaded", limit: MOST_RELOADS })), []);
  return html`<section><h2>Files that were read again</h2>${error ? html`<${Failure} error=${error} again=${reload} />` : found
    ? html`<${Table} label="reloads" columns=${RELOADS} rows=${found.items} of=${(event) => event.id} empty="No file of the operator has changed while the control plane ran." />`
    : html`<${Loading} what="reloads" />`}</section>`;
}

function Images() {
  const [images, error, reload] = useLoaded(() => get("/api/images"), []);
  return html`<section><h2>Images</h2>${error ? html`<${Failure} error=${error} again=${reload} />` : images
    ? html`<${Table} label="images" columns=${IMAGES} rows=${images.items} of=${(image) => image.name} />` : html`<${Loading} what="images" />`}</section>`;
}

export function System({ live }) {
  useLive(live);
  return html`<div class="head"><h1>System</h1><a href="/api/docs">The API's description</a></div>
    <${Doctor} /><${Metrics} usage=${live.usage} /><${Reloads} /><${Images} /><${Hooks} />`;
}
