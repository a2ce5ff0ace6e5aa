// The directories of a workspace as a tree, loaded as they are opened.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { get, ofSession, withQuery } from "../api.js";
import { Raw } from "../parts.js";
import { bytes } from "../format.js";
import { nameOf } from "./file_view.js";

const ROOT = ".";
const byKind = (a, b) => (b.type === "directory") - (a.type === "directory") || a.path.localeCompare(b.path);

function without(state, path) {
  const listed = new Map(state.listed);
  const open = new Set(state.open);
  listed.delete(path);
  open.delete(path);
  return { ...state, listed, open };
}

/** The directories that were listed, and which of them are open. */
export function useTree(session) {
  const [state, setState] = useState({ listed: new Map(), open: new Set([ROOT]), loads: 0 });
  async function load(directories) {
    for (const path of new Set(directories)) {
      try {
        const list = await get(withQuery(ofSession(session, "files", "list"), { path }));
        list.items.sort(byKind);
        setState((now) => ({ ...now, error: null, loads: now.loads + 1, listed: new Map(now.listed).set(path, list) }));
      } catch (error) {
        // A directory that is open, and was removed meanwhile, is in no list any more.
        if (error.status === 404 && path !== ROOT) setState((now) => without(now, path));
        else setState((now) => ({ ...now, error }));
      }
    }
  }
  const toggle = (path) => {
    const open = new Set(state.open);
    if (!open.delete(path)) { open.add(path); load([path]); }
    setState((now) => ({ ...now, open }));
  };
  return {
    ...state, load, toggle,
    at: (path) => state.listed.get(path),
    isOpen: (path) => state.open.has(path),
    find: (path) => [...state.listed.values()].flatMap((list) => list.items).find((entry) => entry.path === path),
    reload: () => load([...state.open]),
    /** Reads those of the directories again that are open. */
    refresh: (directories) => load(directories.filter((path) => state.open.has(path))),
    /** Opens what leads to a path. */
    reveal: (path) => {
      const parts = (path ?? "").split("/").slice(0, -1);
      const above = [ROOT, ...parts.map((_, at) => parts.slice(0, at + 1).join("/"))];
      setState((now) => ({ ...now, open: new Set(above) }));
      return load(above);
    },
  };
}

const ICONS = { directory: "▸", file: "", symlink: "→", other: "•" };

function Entry({ entry, tree, chosen, onChoose, onDrop, depth }) {
  const directory = entry.type === "directory";
  const open = directory && tree.isOpen(entry.path);
  const choose = () => { onChoose(entry.path); if (directory) tree.toggle(entry.path); };
  return html`<li><button class="entry ${entry.type} depth-${Math.min(depth, 12)}" aria-expanded=${directory ? open : undefined}
      aria-current=${chosen === entry.path ? "true" : undefined} onClick=${choose}
      onDrop=${directory ? (event) => onDrop(event, entry.path) : undefined}>
      <span class="icon" aria-hidden="true">${ICONS[entry.type]}</span><span class="name"><${Raw} text=${nameOf(entry.path)} /></span>
      <span class="hint">${entry.type === "file" ? bytes(entry.size) : ""}</span></button>
    ${open && tree.at(entry.path) && html`<${Entries} of=${entry.path} tree=${tree} chosen=${chosen} onChoose=${onChoose} onDrop=${onDrop} depth=${depth + 1} />`}</li>`;
}

function Entries({ of, depth, ...rest }) {
  const list = rest.tree.at(of);
  return html`<ul>${list.items.map((entry) => html`<${Entry} key=${entry.path} entry=${entry} depth=${depth} ...${rest} />`)}
    ${list.truncated && html`<li class="hint">There are more entries than one answer holds.</li>`}</ul>`;
}

/** The arrow keys: up and down to the next entry, right and left open and close a directory. */
function move(event) {
  const all = [...event.currentTarget.querySelectorAll("button.entry")];
  const at = all.indexOf(document.activeElement);
  const expanded = all[at]?.getAttribute("aria-expanded");
  if (event.key === "ArrowDown") all[at + 1]?.focus();
  else if (event.key === "ArrowUp") all[at - 1]?.focus();
  else if ((event.key === "ArrowRight" && expanded === "false") || (event.key === "ArrowLeft" && expanded === "true")) all[at].click();
  else return;
  event.preventDefault();
}

export const Tree = (members) => html`<div onKeyDown=${move}><${Entries} of=${ROOT} depth=${0} ...${members} /></div>`;

/** A dialog that asks for a text. */
export function Ask({ title, label, value, yes, onYes, onNo }) {
  const [text, setText] = useState(value);
  const dialog = useRef(null);
  useEffect(() => dialog.current.showModal(), []);
  const answer = (event) => { event.preventDefault(); if (text.trim()) onYes(text.trim().replace(/\/+$/, "")); };
  return html`<dialog ref=${dialog} aria-label=${title} onCancel=${onNo}><h2>${title}</h2>
    <form onSubmit=${answer}><label>${label} <input size="40" value=${text} onInput=${(event) => setText(event.target.value)} /></label>
      <p class="actions"><button type="button" onClick=${onNo}>Cancel</button><button class="primary" disabled=${!text.trim()}>${yes}</button></p></form></dialog>`;
}
