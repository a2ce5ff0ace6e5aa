// API keys: their roles and limits, what they use, how to create and to revoke one.

import { html, useRef, useState } from "../vendor/preact.js";
import { get, request, send } from "../api.js";
import { Meter } from "../charts.js";
import { Badge, Choice, Confirm, Failure, Loading, Raw, Table, Time, useLoaded } from "../parts.js";
import { bytes, number } from "../format.js";

const ROLES = {
  operator: "creates sessions, and controls only these",
  viewer: "reads, and changes nothing",
  metrics: "reads the metrics only",
  admin: "does everything",
};
const GIB = 1024 ** 3;
// By field: its title, the unit in which a person types it, and how much of the API's unit that is.
const QUOTAS = [
  ["max_sessions", "Live sessions", 1], ["max_cpus", "Cores together", 1], ["max_memory_bytes", "Memory together, GiB", GIB],
  ["max_workspaces", "Workspaces", 1], ["max_workspace_bytes", "Workspaces together, GiB", GIB],
  ["requests_per_second", "Requests per second", 1], ["handle_requests_per_second", "Requests per second of a handle", 1],
  ["max_audit_bytes", "Audit records, GiB", GIB], ["max_egress_bytes_per_day", "Egress per day, GiB", GIB],
  ["max_idle_timeout", "Longest idle time-out, s", 1], ["max_wall_timeout", "Longest lifetime, s", 1],
];
const FRACTIONS = ["max_cpus", "requests_per_second", "handle_requests_per_second"];
const DAY_MS = 86_400_000;
const EXPIRIES = ["never", "30 days", "90 days", "365 days"];

const used = (key, name, limit, show) => html`<${Meter} label=${name} used=${key.used[name]} limit=${key[limit]}>${show(key.used[name])}${
  key[limit] == null ? "" : html` <span class="hint">of ${show(key[limit])}</span>`}<//>`;

const bounds = (key) => [
  key.role === "viewer" && `reads ${key.owner ?? "all sessions"}`, key.max_level && `up to ${key.max_level}`,
  key.images && `images ${key.images.join(", ")}`, key.tools && `tools ${key.tools.join(", ")}`,
  key.requests_per_second && `${key.requests_per_second} requests/s`, key.max_workspaces != null && `${key.max_workspaces} workspaces`,
  key.max_workspace_bytes != null && `${bytes(key.max_workspace_bytes)} of workspaces`, key.max_audit_bytes != null && `${bytes(key.max_audit_bytes)} of records`,
  key.max_egress_bytes_per_day != null && `${bytes(key.max_egress_bytes_per_day)} out a day`,
  key.max_idle_timeout && `idle up to ${key.max_idle_timeout} s`, key.max_wall_timeout && `living up to ${key.max_wall_timeout} s`,
].filter(Boolean).join(" · ");

const columns = (onRevoke, fixed) => [
  { name: "Key", key: (key) => key.name, show: (key) => html`<b><${Raw} text=${key.name} /></b> ${key.current && html`<${Badge} kind="good">yours<//>`}` },
  { name: "Role", key: (key) => key.role, show: (key) => html`<${Badge} kind=${key.role === "admin" ? "bad" : ""}>${key.role}<//>` },
  { name: "Sessions", key: (key) => key.used.sessions, show: (key) => used(key, "sessions", "max_sessions", number) },
  { name: "Cores", key: (key) => key.used.cpus, show: (key) => used(key, "cpus", "max_cpus", number) },
  { name: "Memory", key: (key) => key.used.memory_bytes, show: (key) => used(key, "memory_bytes", "max_memory_bytes", bytes) },
  { name: "Bounds", key: bounds, show: (key) => html`<span class="hint"><${Raw} text=${bounds(key) || "none"} /></span>` },
  { name: "Last use", key: (key) => key.last_used_at, show: (key) => (key.last_used_at ? html`<${Time} at=${key.last_used_at} />` : "never") },
  { name: "Expires", key: (key) => key.expires_at, show: (key) => (key.expired ? html`<${Badge} kind="bad">expired<//>` : key.expires_at ? html`<${Time} at=${key.expires_at} />` : "never") },
  { name: "", show: (key) => (fixed || key.name === "admin" ? "" : html`<button class="danger small" aria-label="Revoke ${key.name}" onClick=${() => onRevoke(key)}>Revoke</button>`) },
];

/** The request's body of what was typed. */
export function newKey({ name, role, owner, level, images, tools, expires, ...quotas }, now = Date.now()) {
  const body = { name, role };
  if (role === "viewer") Object.assign(body, owner ? { owner } : { scope: "all" });
  if (expires !== "never") body.expires_at = new Date(now + parseInt(expires, 10) * DAY_MS).toISOString();
  if (role !== "operator") return body;
  if (level) body.max_level = level;
  for (const [field, text] of [["images", images], ["tools", tools]]) {
    if (text?.trim()) body[field] = text.trim().split(/[\s,]+/);
  }
  for (const [field, , unit] of QUOTAS) {
    if (!quotas[field]) continue;
    const value = Number(quotas[field]) * unit;
    body[field] = FRACTIONS.includes(field) ? value : Math.round(value);
  }
  return body;
}

function Create({ levels, onCreated }) {
  const [given, setGiven] = useState({ name: "", role: "operator", level: "", expires: "90 days" });
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const change = (name) => (event) => setGiven({ ...given, [name]: event.target.value });
  async function submit(event) {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try { onCreated(await send("POST", "/api/keys", newKey(given))); } catch (failed) { setError(failed); }
    setBusy(false);
  }
  const input = (name, title, more) => html`<label>${title} <input value=${given[name] ?? ""} onInput=${change(name)} ...${more} /></label>`;
  return html`<form class="card" aria-label="new key" onSubmit=${submit}><h2>New key</h2><div class="fields">
      ${input("name", "Name", { required: true, maxlength: 64, pattern: "[a-z0-9][a-z0-9._\\-]*", title: "lower-case letters, digits, . _ -", autocomplete: "off" })}
      <${Choice} label="Role" value=${given.role} among=${Object.keys(ROLES)} onChoose=${(role) => setGiven({ ...given, role })} />
      <${Choice} label="Expires" value=${given.expires} among=${EXPIRIES} onChoose=${(expires) => setGiven({ ...given, expires })} />
      ${given.role === "viewer" && input("owner", "Reads the sessions of", { placeholder: "everybody" })}
      ${given.role === "operator" && html`<${Choice} label="Highest level" value=${given.level} among=${["", ...levels]} onChoose=${(level) => setGiven({ ...given, level })} />`}</div>
    <p class="hint">The role ${given.role} ${ROLES[given.role]}.</p>
    ${given.role === "operator" && html`<details><summary>Quotas, images and tools</summary><div class="fields">
      ${QUOTAS.map(([field, title]) => input(field, title, { type: "number", min: 0, step: FRACTIONS.includes(field) || title.endsWith("GiB") ? "any" : 1, placeholder: "no limit" }))}
      ${input("images", "Images", { placeholder: "any on the list" })}${input("tools", "Tools", { placeholder: "any of its level" })}</div></details>`}
    <p class="actions"><button class="primary" disabled=${busy}>Create key</button></p>
    ${error && html`<${Failure} error=${error} />`}</form>`;
}

function Created({ created, onClose }) {
  const [copied, setCopied] = useState(false);
  const box = useRef(null);
  const copy = () => navigator.clipboard.writeText(created.key).then(() => setCopied(true), () => box.current.select());
  return html`<section class="card created" role="status" aria-label="created key"><h2>The key of ${created.name}</h2>
    <p>Copy it now: it is stored nowhere, and is not shown again.</p>
    <div class="joined"><input readonly ref=${box} value=${created.key} aria-label="the new key" class="mono" onFocus=${(event) => event.target.select()} />
      <button onClick=${copy}>${copied ? "Copied" : "Copy"}</button></div>
    <p class="actions"><button onClick=${onClose}>I have it</button></p></section>`;
}

export function Keys() {
  const [list, error, reload] = useLoaded(() => get("/api/keys"), []);
  const [levels] = useLoaded(() => get("/api/policies"), []);
  const [created, setCreated] = useState(null);
  const [revoking, setRevoking] = useState(null);
  const [failed, setFailed] = useState(null);
  async function revoke(key) {
    setRevoking(null);
    setFailed(null);
    try { await request("DELETE", `/api/keys/${encodeURIComponent(key.name)}`); } catch (problem) { setFailed(problem); }
    reload();
  }
  if (!list) return error ? html`<h1>Keys</h1><${Failure} error=${error} again=${reload} />` : html`<${Loading} what="keys" />`;
  return html`<div class="head"><h1>Keys</h1><span class="hint">kept in <code>${list.file}</code>, as hashes</span></div>
    ${error && html`<${Failure} error=${error} again=${reload} />`}
    ${list.obstacle && html`<p class="notice"><${Raw} text=${list.obstacle} /></p>`}
    ${created && html`<${Created} created=${created} onClose=${() => setCreated(null)} />`}
    ${failed && html`<${Failure} error=${failed} />`}
    <${Table} label="keys" columns=${columns(setRevoking, list.obstacle)} rows=${list.items} of=${(key) => key.name} />
    ${!list.obstacle && html`<${Create} levels=${(levels?.items ?? []).map((level) => level.name)} onCreated=${(key) => { setCreated(key); reload(); }} />`}
    ${revoking && html`<${Confirm} title="Revoke ${revoking.name}?" yes="Revoke" onYes=${() => revoke(revoking)} onNo=${() => setRevoking(null)}>
      <p>The key is refused at once, and its streams end. Its ${number(revoking.used.sessions)} live sessions go on with their handles until they end.</p><//>`}`;
}
