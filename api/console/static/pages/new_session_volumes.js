// The volumes that a new session has.

import { html } from "../vendor/preact.js";

const MOST = 8;

/** `{volumes}` of the request; empty if there are none. */
export const mounted = (volumes) => (volumes.length ? { volumes } : {});

function Mount({ known, mount, at, change, remove }) {
  const set = (name, value) => change({ ...mount, [name]: value });
  // A path that follows the name goes on following it.
  const choose = (name) => change({ ...mount, name, ...(mount.path === home(mount.name) && { path: home(name) }) });
  return html`<div class="mount" role="group" aria-label="volume ${at + 1}">
    <label>Volume <select value=${mount.name} onChange=${(event) => choose(event.target.value)}>
      ${known.map(({ name, key }) => html`<option key=${`${key}/${name}`} value=${name}>${name} of ${key}</option>`)}</select></label>
    <label>Path <input required class="mono" autocomplete="off" value=${mount.path} onInput=${(event) => set("path", event.target.value)} /></label>
    <label class="choice"><input type="checkbox" checked=${mount.read_only} onChange=${(event) => set("read_only", event.target.checked)} /> read-only</label>
    <button type="button" class="small" aria-label="Remove volume ${at + 1}" onClick=${remove}>Remove</button></div>`;
}

const home = (name) => `/data/${name}`;

/** `known` are the volumes that there are; `given` the chosen ones, as the API takes them. */
export function VolumesOf({ known, given, change }) {
  if (!known.length) return null;
  const free = known.find(({ name }) => !given.some((mount) => mount.name === name)) ?? known[0];
  const add = () => change([...given, { name: free.name, path: home(free.name), read_only: false }]);
  return html`<details class="more" open=${given.length > 0}><summary>Volumes</summary>
    ${given.map((mount, at) => html`<${Mount} key=${at} known=${known} mount=${mount} at=${at}
      change=${(next) => change(given.with(at, next))} remove=${() => change(given.toSpliced(at, 1))} />`)}
    <p class="actions"><button type="button" disabled=${given.length >= MOST} onClick=${add}>Add a volume</button>
      <span class="hint">One session at a time writes to a volume; any number read it.</span></p></details>`;
}
