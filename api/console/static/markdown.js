// Markdown of a model as elements: from the parser's tokens, never from its HTML. There are no pictures, and no links
// to anything but http and https.

import { html, useMemo } from "./vendor/preact.js";
import { Raw, useLoaded } from "./parts.js";

// Longer texts are shown as they are, and so are those that are nested deeper: the parser leaves the rest out.
const MOST_PARSED = 100_000;
const MOST_NESTED = 60;
const WEB = /^https?:\/\//i;
// The elements of tokens that need nothing else.
const ELEMENTS = {
  blockquote: "blockquote", bullet_list: "ul", list_item: "li", paragraph: "p", thead: "thead", tbody: "tbody", tr: "tr",
  strong: "strong", em: "em", s: "s",
};

const loaded = { parser: null };

/** The parser, which is large, and is loaded with the first text. */
export async function load() {
  const { default: MarkdownIt } = await import("./vendor/markdown-it.js");
  loaded.parser ??= configured(new MarkdownIt({ html: false, linkify: true, maxNesting: MOST_NESTED }));
  return loaded.parser;
}

function configured(parser) {
  // Definitions of references would be out of sight, and hosts in letters that are no ASCII taken for others.
  parser.disable("reference");
  parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
  return Object.assign(parser, { validateLink: (address) => WEB.test(address), normalizeLinkText: (address) => address });
}

/** The tokens of a text, or null if it is shown as it is. */
function tokens(parser, text) {
  if (text.length > MOST_PARSED) return null;
  const found = parser.parse(text, {});
  const deep = ({ nesting, level, children }) => nesting === 1 && level + 1 >= MOST_NESTED || children?.some(deep);
  return found.some(deep) ? null : found;
}

/** The elements of tokens, of which some open an element and others close it. */
function elements(all) {
  const open = [{ children: [] }];
  for (const token of all) {
    if (token.nesting === 1) open.push({ token, children: [] });
    else {
      const within = open.some((each) => each.token?.type === "link_open");
      const made = token.nesting === -1 ? nested(open.pop()) : single(token, within);
      open.at(-1).children.push(made);
    }
  }
  return open[0].children;
}

/** An element with children, by its opening token. */
function nested({ token, children }) {
  const kind = token.type.replace(/_open$/, "");
  if (kind === "link") return link(token.attrGet("href"), children, token.info !== "auto");
  if (kind === "heading") return html`<h4 class="size${token.tag.slice(1)}">${children}</h4>`;
  if (kind === "ordered_list") return html`<ol start=${token.attrGet("start") ?? 1}>${children}</ol>`;
  if (kind === "table") return html`<div class="scroll" tabindex="0"><table>${children}</table></div>`;
  if (kind === "th") return html`<th scope="col" class=${aligned(token)}>${children}</th>`;
  if (kind === "td") return html`<td class=${aligned(token)}>${children}</td>`;
  // The paragraph of a list without empty lines is hidden.
  if (token.hidden || !ELEMENTS[kind]) return children;
  return html`<${ELEMENTS[kind]}>${children}<//>`;
}

const aligned = (token) => (/(right|center)/.exec(token.attrGet("style") ?? "")?.[0] ?? "");

/** An element without children; `within` a link there is no other one. */
function single(token, within) {
  if (token.type === "inline") return elements(token.children);
  if (token.type === "fence" || token.type === "code_block") return code(token.info, token.content.replace(/\n$/, ""));
  if (token.type === "code_inline") return html`<code><${Raw} text=${token.content} /></code>`;
  if (token.type === "hr") return html`<hr />`;
  if (token.type === "hardbreak") return html`<br />`;
  if (token.type === "softbreak") return "\n";
  if (token.type === "image") {
    const label = html`<${Raw} text="picture: ${token.content}" />`;
    return within ? label : link(token.attrGet("src"), label, true);
  }
  return html`<${Raw} text=${token.content} />`;
}

const code = (info, text) => html`${info.trim() && html`<p class="hint info"><${Raw} text=${info.trim()} /></p>`}
  <pre tabindex="0"><code><${Raw} text=${text} /></code></pre>`;

/** A link that names its host, unless its label is the address. */
function link(address, label, named) {
  let url = null;
  try { url = new URL(address); } catch { return label; }
  if (!["http:", "https:"].includes(url.protocol)) return label;
  return html`<a href=${url.href} target="_blank" rel="noopener noreferrer" title=${url.href}>${label}</a>${named && html` <span class="hint">(${url.host})</span>`}`;
}

export function Markdown({ text }) {
  const [found] = useLoaded(async () => loaded.parser ?? load(), []);
  const parser = loaded.parser ?? found;
  const shown = useMemo(() => {
    const all = parser && tokens(parser, text);
    return all && elements(all);
  }, [parser, text]);
  if (!shown) return html`<div class="text"><${Raw} text=${text} /></div>`;
  return html`<div class="text markdown">${shown}</div>`;
}
