// A session's workspace: its files are shown, downloaded and uploaded.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { ofSession, send, withQuery } from "../api.js";
import { Confirm, Empty, Failure, Loading, Raw, Time } from "../parts.js";
import { bytes } from "../format.js";
import { save } from "./downloads.js";
import { ROOT, droppedFiles, join, upload } from "./uploads.js";
import { View, nameOf, opened } from "./file_view.js";
import { useWatch } from "./file_watch.js";
import { Ask, Tree, useTree } from "./file_tree.js";

const CHANGES = new Set(["file.write", "file.delete", "file.move", "file.mkdir", "command.exit"]);

const parent = (path) => path.split("/").slice(0, -1).join("/") || ROOT;

/** What can be done with the chosen entry and its directory, by what the person asks for. */
function useWork(session, tree, choose) {
  const [failed, setFailed] = useState(null);
  const [busy, setBusy] = useState(null);
  const at = (path) => withQuery(ofSession(session, "files"), { path });
  async function act(what, work, directories) {
    setFailed(null);
    setBusy(what);
    try { await work(); } catch (error) { setFailed(error); }
    setBusy(null);
    await tree.load(directories);
  }
  return {
    failed, busy, fail: setFailed,
    put: (directory, files) => act(`Uploading ${files.length === 1 ? files[0].name : `${files.length} files`}`,
      () => upload(session, directory, files), [directory]),
    remove: (path) => act(`Deleting ${path}`, async () => { await send("DELETE", at(path)); choose(null); }, [parent(path)]),
    move: (source, destination) => act(`Renaming ${source}`, async () => {
      await send("POST", ofSession(session, "files", "move"), { source, destination });
      choose(null);
    }, [parent(source), parent(destination)]),
    mkdir: (path) => act(`Making ${path}`, () => send("POST", ofSession(session, "files", "mkdir"), { path }), [parent(path)]),
    download: (path) => act(`Downloading ${path}`, async () => save(await (await opened(session, path)).blob(), nameOf(path)), []),
  };
}

function Chosen({ session, workspace, entry, work, ask }) {
  const file = entry.type === "file";
  return html`<section class="file-pane" aria-label="the chosen file"><div class="file-head"><div>
      <h2><${Raw} text=${nameOf(entry.path)} /></h2>
      <p class="facts hint"><span><${Raw} text=${`${workspace}/${entry.path}`} /></span>${file && html`<span>${bytes(entry.size)}</span>`}
        <span><code>${entry.mode}</code></span><span>changed <${Time} at=${new Date(entry.modified * 1000).toISOString()} /></span></p></div>
      <p class="actions">${file && html`<button onClick=${() => work.download(entry.path)}>Download</button>`}
        <button onClick=${() => ask({ rename: entry.path })}>Rename</button>
        <button class="danger" onClick=${() => ask({ remove: entry.path })}>Delete</button></p></div>
    ${file && html`<${View} key=${entry.path} session=${session} entry=${entry} />`}
    ${entry.type === "symlink" && html`<p>It is a link to <code><${Raw} text=${entry.target ?? "something that is not text"} /></code>.</p>`}
    ${entry.type === "directory" && html`<${Empty}>A directory. Files that are dropped on it are uploaded into it.<//>`}</section>`;
}

function Questions({ asked, ask, work, directory }) {
  const done = (act) => (value) => { ask(null); act(value); };
  if (!asked) return null;
  if (asked.remove) {
    return html`<${Confirm} title="Delete?" yes="Delete" onYes=${done(() => work.remove(asked.remove))} onNo=${() => ask(null)}>
      <p><code><${Raw} text=${asked.remove} /></code></p><//>`;
  }
  if (asked.replace) {
    return html`<${Confirm} title="Replace?" yes="Replace" onYes=${done(() => work.put(asked.directory, asked.files))} onNo=${() => ask(null)}>
      <p>The directory already has <code><${Raw} text=${asked.replace.join(", ")} /></code>.</p><//>`;
  }
  if (asked.rename) {
    return html`<${Ask} title="Rename" label="New path in the workspace" value=${asked.rename} yes="Rename"
      onYes=${done((path) => path !== asked.rename && work.move(asked.rename, path))} onNo=${() => ask(null)} />`;
  }
  return html`<${Ask} title="New folder" label="Path in the workspace" value=${directory === ROOT ? "" : `${directory}/`} yes="Create"
    onYes=${done(work.mkdir)} onNo=${() => ask(null)} />`;
}

export function Files({ found, query }) {
  const { session } = found;
  const tree = useTree(session.id);
  const [path, setPath] = useState(query.get("path"));
  const [asked, ask] = useState(null);
  const [over, setOver] = useState(false);
  const looked = useRef(0);
  const choose = (next) => {
    setPath(next);
    const search = next == null ? "" : `?path=${encodeURIComponent(next)}`;
    history.replaceState(null, "", `#/sessions/${encodeURIComponent(session.id)}/files${search}`);
  };
  const work = useWork(session.id, tree, choose);
  const entry = tree.find(path);
  const directory = !entry ? ROOT : entry.type === "directory" ? path : parent(path);
  useEffect(() => { tree.reveal(path); }, [session.id]);
  const follows = useWatch(session.id, session.status === "active", (directories) => (directories ? tree.refresh(directories) : tree.reload()));
  // Reading is recorded, too: without a watch, the page only says that something has changed, and reads again when asked.
  const changed = found.events.find((event) => CHANGES.has(event.operation))?.seq ?? 0;
  useEffect(() => { looked.current = Math.max(changed, session.telemetry.events_emitted); }, [tree.loads]);
  const stale = !follows && changed > looked.current;
  const put = (into, files) => {
    const there = [...files].map((file) => file.name).filter((name) => tree.find(join(into, name)));
    if (there.length) ask({ replace: there, directory: into, files: [...files] });
    else if (files.length) work.put(into, [...files]);
  };
  const drop = (event, into) => {
    event.preventDefault(); event.stopPropagation(); setOver(false);
    try { put(into, droppedFiles(event.dataTransfer)); } catch (error) { work.fail(error); }
  };
  return html`<div class="files ${over ? "over" : ""}" onDragOver=${(event) => { event.preventDefault(); setOver(true); }}
      onDragLeave=${() => setOver(false)} onDrop=${(event) => drop(event, directory)}>
    <div class="actions file-tools">
      <label class="upload">Upload <input type="file" multiple onChange=${(event) => put(directory, event.target.files)} /></label>
      <button onClick=${() => ask({ folder: true })}>New folder</button>
      <button class=${stale ? "stale" : ""} onClick=${tree.reload}>Refresh</button>
      <span class="hint" role="status">${work.busy ?? (stale ? "the workspace may have changed"
        : html`into <code><${Raw} text=${directory === ROOT ? session.workspace_path : `${session.workspace_path}/${directory}`} /></code>, or drop files here`)}</span>
      ${follows && html`<span class="connection live">follows changes</span>`}</div>
    ${(work.failed || tree.error) && html`<${Failure} error=${work.failed ?? tree.error} again=${tree.error && tree.reload} />`}
    <div class="file-panes">
      <nav class="card tree" aria-label="workspace">${tree.at(ROOT) ? html`<${Tree} tree=${tree} chosen=${path} onChoose=${choose} onDrop=${drop} />`
        : !tree.error && html`<${Loading} what="files" />`}</nav>
      ${entry ? html`<${Chosen} session=${session.id} workspace=${session.workspace_path} entry=${entry} work=${work} ask=${ask} />`
        : html`<section class="file-pane"><${Empty}>${tree.at(ROOT)?.items.length === 0
          ? "The workspace is empty. Drop files here, or upload some." : "Choose a file to look at it."}<//></section>`}</div>
    <${Questions} asked=${asked} ask=${ask} work=${work} directory=${directory} /></div>`;
}
