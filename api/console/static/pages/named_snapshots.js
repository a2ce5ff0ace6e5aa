// Named snapshots of a session's workspace, and sessions that begin with its files.

import { html, useEffect, useState } from "../vendor/preact.js";
import { get, ofSession, request, send, withQuery } from "../api.js";
import { Failure, Loading, Raw, Table, Time, useLoaded } from "../parts.js";
import { bytes, number } from "../format.js";
import { link } from "./overview_sessions.js";
import { Dialog, useWork } from "./snapshots.js";

const MOST = 1000;
const LOOK_MS = 1000;

const at = ({ id, key }) => withQuery(`/api/snapshots/${encodeURIComponent(id)}`, { key });

const columns = (onRemove) => [
  { name: "Name", key: (each) => each.name, show: (each) => html`<b><${Raw} text=${each.name} /></b>` },
  { name: "Takes", key: (each) => each.stored_bytes, show: (each) => bytes(each.stored_bytes) },
  { name: "Taken", key: (each) => each.created_at, show: (each) => html`<${Time} at=${each.created_at} />` },
  { name: "", show: (each) => html`<button type="button" class="danger small" aria-label="Remove ${each.name}" onClick=${() => onRemove(each)}>Remove</button>` },
];

/** How much is copied so far, while that goes on. */
function Progress({ session, name }) {
  const [copied, setCopied] = useState(null);
  useEffect(() => {
    const timer = setInterval(async () => {
      const { items } = await get(withQuery("/api/snapshots", { session, limit: MOST })).catch(() => ({ items: [] }));
      setCopied(items.find((each) => each.name === name)?.copied_bytes ?? null);
    }, LOOK_MS);
    return () => clearInterval(timer);
  }, [session, name]);
  return copied === null ? "Taking the snapshot" : `${bytes(copied)} copied`;
}

/** Lists the named snapshots of a session's workspace, takes and removes them. */
export function KeptFiles({ session, onClose }) {
  const { busy, failed, run } = useWork();
  const [name, setName] = useState("");
  const [list, error, reload] = useLoaded(() => get(withQuery("/api/snapshots", { session: session.id, limit: MOST })), [session.id]);
  const take = () => run(async () => {
    await send("POST", ofSession(session.id, "snapshots"), { name });
    setName("");
    reload();
  });
  const remove = (each) => run(async () => {
    await request("DELETE", at(each));
    reload();
  });
  return html`<${Dialog} title="Files of ${session.id}" yes="Keep a copy" failed=${failed ?? error} ready=${name} onYes=${take} onClose=${onClose}
      busy=${busy && (name ? html`<${Progress} session=${session.id} name=${name} />` : "Removing")}>
    <p>A copy of the workspace as it is now, under a name. Sessions of the key begin with these files by <code>from_snapshot</code>. The session may be in use.</p>
    <label>Name <input maxlength="64" autocomplete="off" value=${name} onInput=${(event) => setName(event.target.value)} /></label>
    ${list ? html`<${Table} label="named snapshots" columns=${columns(remove)} rows=${list.items} of=${(each) => each.id} empty="There is no copy yet." />`
      : !error && html`<${Loading} what="named snapshots" />`}<//>`;
}

/** Makes sessions that begin with the files of one. */
export function Fork({ session, onClose }) {
  const { busy, failed, done, run } = useWork();
  const [count, setCount] = useState("1");
  const fork = () => run(() => send("POST", ofSession(session.id, "fork"), { count: Number(count) }));
  return html`<${Dialog} title="Fork of ${session.id}" yes="Fork" busy=${busy && "Starting the sandboxes"} failed=${failed} done=${done} ready=${count} onYes=${fork} onClose=${onClose}>
    <p>New sessions of yours that begin with its files, with its level, image, variables, limits, policy and budget. All of them are created, or none. They have none of its secrets and turns.</p>
    <label>Sessions <input type="number" required min="1" max="100" value=${count} onInput=${(event) => setCount(event.target.value)} /></label>
    ${done && html`<p role="status">${number(done.sessions.length)} created: ${done.sessions.map((each) => html`<span class="line">${link(each.id)}</span>`)}</p>`}<//>`;
}
