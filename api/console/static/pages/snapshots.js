// Snapshots: a session as one file, taken and saved here, and restored from a file.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { ofSession, request } from "../api.js";
import { Failure, Raw } from "../parts.js";
import { bytes, number } from "../format.js";
import { save } from "./downloads.js";
import { droppedFiles } from "./uploads.js";

/** `{busy, failed, done, run}`: one piece of work, which `run` begins and the end of the dialog gives up. */
export function useWork() {
  const [state, setState] = useState({});
  const stop = useRef(null);
  useEffect(() => () => stop.current?.abort(), []);
  async function run(work) {
    stop.current = new AbortController();
    const { signal } = stop.current;
    setState({ busy: true });
    try { setState({ done: await work(signal) }); } catch (failed) { if (!signal.aborted) setState({ failed }); }
  }
  return { ...state, run };
}

/** A dialog whose button does something that can take long. */
export function Dialog({ title, yes, busy, failed, ready, done, onYes, onClose, children }) {
  const dialog = useRef(null);
  useEffect(() => dialog.current.showModal(), []);
  const submit = (event) => { event.preventDefault(); onYes(); };
  return html`<dialog ref=${dialog} class="wide" aria-label=${title} onCancel=${onClose}><h2><${Raw} text=${title} /></h2><form onSubmit=${submit}>
    ${children}${failed && html`<${Failure} error=${failed} />`}
    <p class="actions"><button type="button" onClick=${onClose}>${done ? "Close" : "Cancel"}</button>
      ${!done && html`<button class="primary" disabled=${busy || !ready}>${yes}</button>`}
      <span class="hint" role="status">${busy || ""}</span></p></form></dialog>`;
}

/** Asks before it takes a snapshot, and saves it. */
export function TakeSnapshot({ session, onClose }) {
  const { busy, failed, done, run } = useWork();
  const take = () => run(async (signal) => {
    const response = await request("POST", ofSession(session.id, "snapshot"), { signal });
    const archive = await response.blob();
    const left = { count: Number(response.headers.get("X-Paddock-Skipped")), names: JSON.parse(response.headers.get("X-Paddock-Skipped-Names") ?? "[]") };
    save(archive, `${session.id}.tar`);
    return { size: archive.size, left };
  });
  return html`<${Dialog} title="Snapshot of ${session.id}" yes="Take and save" busy=${busy && "Taking the snapshot"} failed=${failed} done=${done} ready onYes=${take} onClose=${onClose}>
    <p>One file with the whole session: its turns, budget, policy and workspace, and what is staged. Another control plane restores it under the same id, or any one under another.
      Secrets, terminals and the output of commands are left out.</p>
    <p class="hint">Nothing may run in the session, and no terminal, shell or port may be open. Its sandbox is removed, and it gets a new one at its next use. Keep the file as you keep the workspace: it contains all that the session could read.</p>
    ${done && html`<p role="status">Saved as <code><${Raw} text=${session.id} />.tar</code>, ${bytes(done.size)}.${
      done.left.count > 0 && html` ${number(done.left.count)} files were left out, such as <code><${Raw} text=${done.left.names[0]} /></code>.`}</p>`}<//>`;
}

/** Asks for a snapshot's file, and restores its session. */
export function RestoreSession({ onClose }) {
  const { busy, failed, run } = useWork();
  const [file, setFile] = useState(null);
  const [refused, setRefused] = useState(null);
  const [over, setOver] = useState(false);
  const drop = (event) => {
    event.preventDefault();
    setOver(false);
    setRefused(null);
    try { setFile(droppedFiles(event.dataTransfer)[0] ?? null); } catch (error) { setRefused(error); }
  };
  const restore = () => run(async (signal) => {
    const { id } = await (await request("POST", "/api/sessions/restore", { body: file, signal })).json();
    location.hash = `#/sessions/${encodeURIComponent(id)}`;
  });
  return html`<${Dialog} title="Restore a session" yes="Restore" busy=${busy && "Restoring"} failed=${failed ?? refused} ready=${file} onYes=${restore} onClose=${onClose}>
    <p>The session of the snapshot is created here, with its id, as yours. This control plane must not know the id.</p>
    <div class="drop ${over ? "over" : ""}" role="group" aria-label="snapshot" onDrop=${drop}
        onDragOver=${(event) => { event.preventDefault(); setOver(true); }} onDragLeave=${() => setOver(false)}>
      <label>Snapshot <input type="file" accept=".tar" onChange=${(event) => setFile(event.target.files[0] ?? null)} /></label>
      <span class="hint">${file ? html`<${Raw} text=${file.name} />, ${bytes(file.size)}` : "or drop the file here"}</span></div><//>`;
}
