// A value of a cell: as a picture or as text, never as markup of the page.

import { html, useEffect, useMemo, useState } from "../vendor/preact.js";
import { Raw } from "../parts.js";

const PICTURES = ["png", "jpeg"];
// HTML and SVG could run scripts or load something, so they are shown as their source.
const SOURCES = ["html", "svg", "markdown", "latex", "javascript"];

const blobOf = (base64, type) => new Blob([Uint8Array.from(atob(base64), (character) => character.charCodeAt(0))], { type });

export const Text = ({ label, text, kind = "" }) => html`<pre class=${kind} tabindex="0" role="group" aria-label=${label}><${Raw} text=${text} /></pre>`;

function Picture({ base64, kind, title }) {
  const [broken, setBroken] = useState(false);
  const address = useMemo(() => URL.createObjectURL(blobOf(base64, `image/${kind}`)), [base64]);
  useEffect(() => () => URL.revokeObjectURL(address), [address]);
  if (broken) return html`<p class="state">The picture can't be shown.</p>`;
  return html`<div class="picture"><img src=${address} alt=${title} onError=${() => setBroken(true)} /></div>`;
}

/** The forms of a value as source text, `[name, text]`. */
function sources(value) {
  const found = SOURCES.filter((name) => value[name] != null).map((name) => [name, value[name]]);
  if (value.value != null) found.push(["json", JSON.stringify(value.value, null, 2)]);
  return [...found, ...Object.entries(value.other ?? {})];
}

export function Value({ value }) {
  const picture = PICTURES.find((kind) => value[kind]);
  const shown = Boolean(picture || value.text != null);
  return html`${picture ? html`<${Picture} base64=${value[picture]} kind=${picture} title=${value.text ?? "a picture"} />`
      : value.text != null && html`<${Text} label="value" text=${value.text} />`}
    ${sources(value).map(([name, text], at) => html`<details key=${name} open=${!shown && at === 0}><summary>as ${name}</summary>
      <${Text} label=${name} text=${text} /></details>`)}`;
}
