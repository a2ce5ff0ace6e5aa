// A session's workspace: look at files, take them out, and put some in.

import { html, useEffect, useState } from "../vendor/preact.js";
import { get, ofSession, request, send, withQuery } from "../api.js";
import { Confirm, Failure, Loading, Raw, Table, Time, useLoaded } from "../parts.js";
import { bytes } from "../format.js";

const MOST_SHOWN = 512 * 1024;
const IMAGES = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp" };
const HEX_BYTES = 4096;

const parent = (path) => path.split("/").slice(0, -1).join("/") || ".";
const name = (path) => path.split("/").pop();
const join = (directory, file) => (directory === "." ? file : `${directory}/${file}`);

/** The first bytes as rows of an offset, hexadecimal digits and characters. */
function hex(data) {
  const rows = [];
  for (let at = 0; at < Math.min(data.length, HEX_BYTES); at += 16) {
    const part = [...data.slice(at, at + 16)];
    const digits = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const text = part.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    rows.push(`${at.toString(16).padStart(8, "0")}  ${digits}  ${text}`);
  }
  return rows.join("\n") + (data.length > HEX_BYTES ? `\n… ${bytes(data.length - HEX_BYTES)} more` : "");
}

function decoded(data) {
  try { return new TextDecoder("utf-8", { fatal: true }).decode(data); } catch { return null; }
}

function View({ session, path, size }) {
  const [content, error] = useLoaded(async () => {
    if (size > MOST_SHOWN) return { large: true };
    const response = await request("GET", withQuery(ofSession(session, "files"), { path }));
    const data = new Uint8Array(await response.arrayBuffer());
    const type = IMAGES[name(path).split(".").pop().toLowerCase()];
    return type ? { image: URL.createObjectURL(new Blob([data], { type })) } : { text: decoded(data), data };
  }, [session, path]);
  useEffect(() => () => content?.image && URL.revokeObjectURL(content.image), [content]);
  if (error) return html`<${Failure} error=${error} />`;
  if (!content) return html`<${Loading} what=${path} />`;
  if (content.large) return html`<p class="state">It is larger than ${bytes(MOST_SHOWN)}: download it.</p>`;
  if (content.image) return html`<img class="file" src=${content.image} alt=${name(path)} />`;
  return html`<pre tabindex="0" aria-label=${path}>${content.text == null ? hex(content.data) : html`<${Raw} text=${content.text} />`}</pre>`;
}

async function download(session, path) {
  const response = await request("GET", withQuery(ofSession(session, "files"), { path }));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = name(path);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

export function Files({ session, query }) {
  const [at, setAt] = useState(query.get("path") ?? ".");
  const [shown, setShown] = useState(null);
  const [removing, setRemoving] = useState(null);
  const [failed, setFailed] = useState(null);
  const [list, error, reload] = useLoaded(() => get(withQuery(ofSession(session.id, "files", "list"), { path: at })), [session.id, at]);
  const act = (work) => { setFailed(null); work.then(reload, setFailed); };
  const put = (files) => act(Promise.all([...files].map((file) => request("PUT",
    withQuery(ofSession(session.id, "files"), { path: join(at, file.name) }), { body: file }))));
  const remove = (path) => { setRemoving(null); act(send("DELETE", withQuery(ofSession(session.id, "files"), { path }))); };
  const rename = (path) => {
    const destination = prompt("New path", path);
    if (destination && destination !== path) act(send("POST", ofSession(session.id, "files", "move"), { source: path, destination }));
  };
  const go = (path) => { setShown(null); setAt(path); };
  const columns = [
    { name: "Name", key: (entry) => name(entry.path), show: (entry) => (entry.type === "directory"
      ? html`<button class="plain" onClick=${() => go(entry.path)}>▸ <${Raw} text=${name(entry.path)} /></button>`
      : entry.type === "file"
        ? html`<button class="plain" onClick=${() => setShown(entry)}><${Raw} text=${name(entry.path)} /></button>`
        : html`<${Raw} text=${name(entry.path)} />${entry.target ? html` → <${Raw} text=${entry.target} />` : ""}`) },
    { name: "Size", num: true, key: (entry) => entry.size, show: (entry) => (entry.type === "file" ? bytes(entry.size) : "") },
    { name: "Mode", key: (entry) => entry.mode, show: (entry) => html`<code>${entry.mode}</code>` },
    { name: "Changed", key: (entry) => entry.modified, show: (entry) => html`<${Time} at=${new Date(entry.modified * 1000).toISOString()} />` },
    { name: "", show: (entry) => html`<span class="actions">
      ${entry.type === "file" && html`<button onClick=${() => download(session.id, entry.path).catch(setFailed)}>Download</button>`}
      <button onClick=${() => rename(entry.path)}>Rename</button>
      <button class="danger" onClick=${() => setRemoving(entry.path)}>Delete</button></span>` },
  ];
  return html`<div onDragOver=${(event) => event.preventDefault()}
      onDrop=${(event) => { event.preventDefault(); put(event.dataTransfer.files); }}>
    <p class="actions"><button disabled=${at === "."} onClick=${() => go(parent(at))}>Up</button>
      <code>/workspace/${at === "." ? "" : html`<${Raw} text=${at} />`}</code>
      <label class="upload">Upload <input type="file" multiple onChange=${(event) => put(event.target.files)} /></label>
      <span class="hint">or drop files here</span></p>
    ${failed && html`<${Failure} error=${failed} />`}
    ${error && html`<${Failure} error=${error} again=${reload} />`}
    ${list ? html`<${Table} label="files" columns=${columns} rows=${list.items} of=${(entry) => entry.path} empty="The directory is empty." />`
      : !error && html`<${Loading} what="files" />`}
    ${list?.truncated && html`<p class="hint">There are more entries than one answer holds.</p>`}
    ${shown && html`<h2><${Raw} text=${shown.path} /></h2><${View} key=${shown.path} session=${session.id} path=${shown.path} size=${shown.size} />`}
    ${removing && html`<${Confirm} title="Delete?" yes="Delete" onYes=${() => remove(removing)} onNo=${() => setRemoving(null)}>
      <p><code><${Raw} text=${removing} /></code></p><//>`}</div>`;
}
