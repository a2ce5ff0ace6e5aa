// Volumes: files of keys that outlive sessions. They are listed, created and removed.

import { html, useState } from "../vendor/preact.js";
import { get, request, send, withQuery } from "../api.js";
import { Meter } from "../charts.js";
import { Confirm, Failure, Loading, Raw, Table, Time, useLoaded } from "../parts.js";
import { bytes, number } from "../format.js";
import { link } from "./overview_sessions.js";

const MIB = 1024 ** 2;
const PAGE = 1000;
const MOST = 10_000;

/** All volumes that the key may see, up to a number. */
async function volumes() {
  const items = [];
  let cursor = "";
  do {
    const page = await get(withQuery("/api/volumes", { limit: PAGE, cursor }));
    items.push(...page.items);
    cursor = page.next;
  } while (cursor && items.length < MOST);
  return { items, more: Boolean(cursor) };
}

const User = ({ user }) => html`<span class="line">${link(user.id)} <code><${Raw} text=${user.path} /></code>${user.read_only && " read-only"}</span>`;

const columns = (onRemove) => [
  { name: "Volume", key: (volume) => volume.name, show: (volume) => html`<b><${Raw} text=${volume.name} /></b>` },
  { name: "Key", key: (volume) => volume.key, show: (volume) => html`<${Raw} text=${volume.key} />` },
  { name: "Holds", key: (volume) => volume.used_bytes, show: (volume) => html`<${Meter} label="what ${volume.name} holds" used=${volume.used_bytes ?? 0} limit=${volume.size_bytes}>
      ${bytes(volume.used_bytes)} <span class="hint">of ${bytes(volume.size_bytes)}</span><//>` },
  { name: "Sessions", key: (volume) => volume.sessions.length, show: (volume) => volume.sessions.map((user) => html`<${User} key=${user.id} user=${user} />`) },
  { name: "Created", key: (volume) => volume.created_at, show: (volume) => html`<${Time} at=${volume.created_at} />` },
  { name: "", show: (volume) => html`<button class="danger small" aria-label="Remove ${volume.name}" onClick=${() => onRemove(volume)}>Remove</button>` },
];

function Create({ onCreated }) {
  const [given, setGiven] = useState({ name: "", size: "1024" });
  const [failed, setFailed] = useState(null);
  const [busy, setBusy] = useState(false);
  const set = (name) => (event) => setGiven({ ...given, [name]: event.target.value });
  async function submit(event) {
    event.preventDefault();
    setBusy(true);
    setFailed(null);
    try {
      await send("POST", "/api/volumes", { name: given.name, size_bytes: Math.round(Number(given.size) * MIB) });
      setGiven({ ...given, name: "" });
      onCreated();
    } catch (error) { setFailed(error); }
    setBusy(false);
  }
  return html`<form class="card" aria-label="new volume" onSubmit=${submit}><h2>New volume</h2><div class="fields">
      <label>Name <input required maxlength="64" autocomplete="off" value=${given.name} onInput=${set("name")} /></label>
      <label>Size, MiB <input type="number" required min="0" step="any" value=${given.size} onInput=${set("size")} /></label></div>
    <p class="hint">It is your key's, empty, and holds no more than its size. A session has it from its creation on: see <i>New session</i>.</p>
    ${failed && html`<${Failure} error=${failed} />`}
    <p class="actions"><button class="primary" disabled=${busy}>Create volume</button></p></form>`;
}

export function Volumes() {
  const [list, error, reload] = useLoaded(volumes, []);
  const [removing, setRemoving] = useState(null);
  const [failed, setFailed] = useState(null);
  async function remove({ name, key }) {
    setRemoving(null);
    setFailed(null);
    try { await request("DELETE", withQuery(`/api/volumes/${encodeURIComponent(name)}`, { key })); } catch (problem) { setFailed(problem); }
    reload();
  }
  if (!list) return html`<h1>Volumes</h1>${error ? html`<${Failure} error=${error} again=${reload} />` : html`<${Loading} what="volumes" />`}`;
  return html`<div class="head"><h1>Volumes</h1><span class="hint">files that outlive sessions</span></div>
    ${error && html`<${Failure} error=${error} again=${reload} />`}${failed && html`<${Failure} error=${failed} />`}
    <${Table} label="volumes" columns=${columns(setRemoving)} rows=${list.items} of=${(volume) => `${volume.key}/${volume.name}`} empty="There is no volume." />
    ${list.more && html`<p class="hint">Only the first ${number(list.items.length)} are shown.</p>`}
    <${Create} onCreated=${reload} />
    ${removing && html`<${Confirm} title="Remove ${removing.name}?" yes="Remove" onYes=${() => remove(removing)} onNo=${() => setRemoving(null)}>
      <p>All of its files are deleted: ${bytes(removing.used_bytes)} of the key <b><${Raw} text=${removing.key} /></b>. A volume that a session has is not removed.</p><//>`}`;
}
