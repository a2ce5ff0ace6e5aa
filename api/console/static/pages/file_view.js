// Shows one file of a workspace: as source text, an image, or bytes; never as a page.

import { html, useEffect, useState } from "../vendor/preact.js";
import { ofSession, request, withQuery } from "../api.js";
import { Failure, Loading, Raw, useLoaded } from "../parts.js";
import { bytes } from "../format.js";
import { highlighted } from "../highlight.js";

const MOST_SHOWN = 512 * 1024;
// More coloured pieces would make the page slow.
const MOST_COLOURED = 100 * 1024;
// Not SVG, which is shown as its source text.
const IMAGES = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp" };
const HEX_BYTES = 4096;

export const nameOf = (path) => path.split("/").pop();

/** Bytes as rows of an offset, hexadecimal digits and characters. */
function hex(data) {
  const rows = [];
  for (let at = 0; at < data.length; at += 16) {
    const part = [...data.subarray(at, at + 16)];
    const digits = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const text = part.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    rows.push(`${at.toString(16).padStart(8, "0")}  ${digits}  ${text}`);
  }
  return rows.join("\n");
}

function decoded(data) {
  if (data.includes(0)) return null;
  try { return new TextDecoder("utf-8", { fatal: true }).decode(data); } catch { return null; }
}

export const opened = (session, path) => request("GET", withQuery(ofSession(session, "files"), { path }));

/** Text with its lines' numbers, in the colours of the file's kind. */
export function Source({ text, path }) {
  const pieces = text.length > MOST_COLOURED ? [["", text]] : highlighted(text, nameOf(path));
  const lines = text.split("\n").length - (text.endsWith("\n") ? 1 : 0);
  const numbers = Array.from({ length: lines }, (_, at) => at + 1).join("\n");
  return html`<div class="source" tabindex="0" role="region" aria-label=${path}><pre class="lines" aria-hidden="true">${numbers}</pre>
    <pre>${pieces.map(([kind, piece]) => (kind ? html`<span class="code-${kind}"><${Raw} text=${piece} /></span>` : html`<${Raw} text=${piece} />`))}</pre></div>`;
}

function Bytes({ data, path }) {
  const [shown, setShown] = useState(HEX_BYTES);
  const left = data.length - shown;
  return html`<pre class="hex" tabindex="0" aria-label=${path}>${hex(data.subarray(0, shown))}</pre>
    ${left > 0 && html`<p><button onClick=${() => setShown(shown * 4)}>Show more</button> <span class="hint">${bytes(left)} more</span></p>`}`;
}

export function View({ session, entry: { path, size, modified } }) {
  const [content, error] = useLoaded(async () => {
    if (size > MOST_SHOWN) return { large: true };
    const data = new Uint8Array(await (await opened(session, path)).arrayBuffer());
    const type = IMAGES[nameOf(path).split(".").pop().toLowerCase()];
    return type ? { image: URL.createObjectURL(new Blob([data], { type })), data } : { text: decoded(data), data };
  }, [session, path, size, modified]);
  const [broken, setBroken] = useState(false);
  useEffect(() => () => content?.image && URL.revokeObjectURL(content.image), [content]);
  if (error) return html`<${Failure} error=${error} />`;
  if (!content) return html`<${Loading} what=${nameOf(path)} />`;
  if (content.large) return html`<p class="state">It is larger than ${bytes(MOST_SHOWN)}: download it to see it.</p>`;
  if (content.image && !broken) {
    return html`<div class="picture"><img src=${content.image} alt=${nameOf(path)} onError=${() => setBroken(true)} /></div>`;
  }
  if (!content.data.length) return html`<p class="state">The file is empty.</p>`;
  return content.text == null ? html`<${Bytes} data=${content.data} path=${path} />` : html`<${Source} text=${content.text} path=${path} />`;
}
