// The dialog for a new session: what it asks of the API, and the files that it begins with.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { get, ofSession, send } from "../api.js";
import { Failure, Loading, Raw, useLoaded } from "../parts.js";
import { bytes } from "../format.js";
import { LimitsAndBudget, limited } from "./new_session_limits.js";
import { VolumesOf, mounted } from "./new_session_volumes.js";
import { droppedFiles, ROOT, upload } from "./uploads.js";

const LEVEL = "medium";
const MINUTE = 60;

/** The request's body of what was typed and chosen; what is empty is left to the control plane. */
export function newSession({ id, template, level, image, policy, idle, wall, limits, budget, volumes }) {
  const body = { id, template, permission_level: level, image, policy, ...limited({ limits, budget }), ...mounted(volumes) };
  if (idle) body.idle_timeout = Math.round(Number(idle) * MINUTE);
  if (wall) body.wall_timeout = Math.round(Number(wall) * MINUTE);
  return Object.fromEntries(Object.entries(body).filter(([, value]) => value !== ""));
}

/** `{levels, policies, images, templates, volumes}` that a new session may have. */
async function choices() {
  const [levels, images, volumes, templates] = await Promise.all(["policies", "images", "volumes", "templates"].map((what) => get(`/api/${what}`)));
  return { volumes: volumes.items, templates: templates.items, levels: levels.items, policies: levels.session_policies, images: images.items.filter(({ allowed }) => allowed) };
}

/** A choice of `[value, title, refused]` rows; the empty value leaves it to the control plane. */
const Among = ({ label, value, rows, onChoose, ...more }) => html`<label>${label}
  <select value=${value} onChange=${(event) => onChoose(event.target.value)} ...${more}>
    ${rows.map(([word, title, refused]) => html`<option key=${word} value=${word} disabled=${refused}>${title}</option>`)}</select></label>`;

/** Files by drag or choice, each name once. `files` is a Map of them by name. */
function Given({ files, change, fail }) {
  const [over, setOver] = useState(false);
  const add = (more) => change(new Map([...files, ...[...more].map((file) => [file.name, file])]));
  const remove = (name) => change(new Map([...files].filter(([each]) => each !== name)));
  const drop = (event) => {
    event.preventDefault();
    setOver(false);
    try { add(droppedFiles(event.dataTransfer)); } catch (error) { fail(error); }
  };
  return html`<div class="drop ${over ? "over" : ""}" role="group" aria-label="files" onDrop=${drop}
      onDragOver=${(event) => { event.preventDefault(); setOver(true); }} onDragLeave=${() => setOver(false)}>
    <div class="actions"><label class="upload">Add files <input type="file" multiple
      onChange=${(event) => { add(event.target.files); event.target.value = ""; }} /></label>
      <span class="hint">or drop them here: they go into its workspace</span></div>
    ${files.size > 0 && html`<ul class="given">${[...files.values()].map((file) => html`<li key=${file.name}>
      <span class="grow"><${Raw} text=${file.name} /></span> <span class="hint">${bytes(file.size)}</span>
      <button type="button" class="small" aria-label="Remove ${file.name}" onClick=${() => remove(file.name)}>Remove</button></li>`)}</ul>`}</div>`;
}

/** The choice of a template, whose level it takes over. */
function Template({ known, given, change }) {
  const choose = (template) => {
    const level = known.templates.find(({ name }) => name === template)?.permission_level ?? given.level;
    change({ ...given, template, level, image: "" });
  };
  const title = ({ name, state }) => (state === "built" ? name : `${name} (${state})`);
  return html`<${Among} label="Template" value=${given.template} onChoose=${choose}
    rows=${[["", "none"], ...known.templates.map((each) => [each.name, title(each)])]} />`;
}

function Fields({ known, given, change }) {
  const set = (name) => (value) => change({ ...given, [name]: value });
  const input = (name, title, more) => html`<label>${title}
    <input value=${given[name]} autocomplete="off" onInput=${(event) => set(name)(event.target.value)} ...${more} /></label>`;
  const minutes = { type: "number", min: 0, step: "any", placeholder: "of the control plane" };
  const image = ({ name, short_name: short, available, levels }) =>
    [name, `${short}${available ? "" : " (not available)"}`, !available || !levels.includes(given.level)];
  return html`<div class="fields">
    ${input("id", "Id", { placeholder: "made up for you", maxlength: 128, autofocus: true })}
    ${known.templates.length > 0 && html`<${Template} known=${known} given=${given} change=${change} />`}
    <${Among} label="Level" value=${given.level} onChoose=${(level) => change({ ...given, level, image: "" })}
      rows=${known.levels.map(({ name, allowed, rule }) => [name, allowed ? name : `${name} (${rule ?? "not yours"})`, !allowed])} />
    <${Among} label="Image" value=${given.image} onChoose=${set("image")} rows=${[["", "the default"], ...known.images.map(image)]} />
    <${Among} label="Policy of its turns" value=${given.policy} onChoose=${set("policy")}
      rows=${[["", "the default"], ...known.policies.map(({ name }) => [name, name])]} />
    ${input("idle", "Ends when idle for, minutes", minutes)}${input("wall", "Ends in any case after, minutes", { ...minutes, placeholder: "never" })}</div>
    <${LimitsAndBudget} level=${known.levels.find(({ name }) => name === given.level)} given=${given} change=${change} />
    <${VolumesOf} known=${known.volumes} given=${given.volumes} change=${set("volumes")} />`;
}

/** What `create` does, and how far it is: `{busy, failed, created}`. */
function useCreation(given, files, change) {
  const [state, setState] = useState({});
  // A session that was created stays so when one of its files can't be written: the next try goes on with the rest.
  async function create() {
    let { created } = state;
    setState({ created, busy: created ? "Uploading" : "Creating the session" });
    try {
      created ??= (await send("POST", "/api/sessions", newSession(given))).id;
      const left = new Map(files);
      await upload(created, ROOT, files.values(), (file) => {
        left.delete(file.name);
        change(new Map(left));
        setState({ created, busy: `Uploading: ${left.size} left` });
      });
      location.hash = `#/sessions/${encodeURIComponent(created)}`;
    } catch (failed) { setState({ created, failed }); }
  }
  return { ...state, create, fail: (failed) => setState({ ...state, failed }) };
}

function Form({ known, onClose }) {
  const first = known.levels.find(({ name, allowed }) => allowed && name === LEVEL) ?? known.levels.find(({ allowed }) => allowed);
  const [given, setGiven] = useState({ id: "", template: "", level: first?.name ?? "", image: "", policy: "", idle: "", wall: "", limits: {}, budget: {}, volumes: [] });
  const [files, setFiles] = useState(new Map());
  const { busy, failed, created, create, fail } = useCreation(given, files, setFiles);
  const submit = (event) => { event.preventDefault(); create(); };
  return html`<form onSubmit=${submit}><fieldset class="bare" disabled=${Boolean(busy)}>
      ${created ? html`<p>The session <a href=${`#/sessions/${encodeURIComponent(created)}`}><${Raw} text=${created} /></a> was created.</p>`
        : html`<${Fields} known=${known} given=${given} change=${setGiven} />`}
      <${Given} files=${files} change=${setFiles} fail=${fail} />
      ${failed && html`<${Failure} error=${failed} />`}
      <p class="actions"><button type="button" onClick=${onClose}>Cancel</button>
        <button class="primary">${created ? "Upload the rest" : "Create"}</button> <span class="hint" role="status">${busy ?? ""}</span></p></fieldset></form>`;
}

export function NewSession({ onClose }) {
  const [known, error, reload] = useLoaded(choices, []);
  const dialog = useRef(null);
  useEffect(() => dialog.current.showModal(), []);
  return html`<dialog ref=${dialog} class="wide" aria-label="New session" onCancel=${onClose}><h2>New session</h2>
    ${known ? html`<${Form} known=${known} onClose=${onClose} />`
      : html`${error ? html`<${Failure} error=${error} again=${reload} />` : html`<${Loading} what="levels, images and volumes" />`}
        <p class="actions"><button onClick=${onClose}>Cancel</button></p>`}</dialog>`;
}
