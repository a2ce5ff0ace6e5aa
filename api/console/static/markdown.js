// Markdown of a model as elements, without HTML, pictures, and links to anything but http and https.
// Each rule reads a text once, because a model may write whatever it likes.

import { html, useMemo } from "./vendor/preact.js";
import { Raw } from "./parts.js";

const MOST_NESTED = 6;
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]{0,32})/;
const HEADING = /^ {0,3}(#{1,6})\s+(\S.*)$/;
const RULE = /^(?:-{3,}|\*{3,}|_{3,})$/;
const ITEM = /^( {0,9})(?:[-*+]|(\d{1,9})[.)])( {1,4})(?=\S)/;
const QUOTE = /^ {0,3}> ?/;
const ROW = /^\s*\|.*\|\s*$/;
const RULED = /^\s*\|(?:\s*:?-+:?\s*\|)+\s*$/;

const ruled = (line) => RULE.test(line.replaceAll(" ", ""));
const begins = (line) => ruled(line) || [FENCE, HEADING, ITEM, QUOTE, ROW].some((each) => each.test(line));
const indent = (line) => line.length - line.trimStart().length;

/** The blocks of some lines, as elements. */
function blocks(lines, depth) {
  const found = [];
  for (let at = 0; at < lines.length;) {
    const [element, next] = block(lines, at, depth);
    if (element) found.push(element);
    at = next;
  }
  return found;
}

/** The block that begins at a line, and the line at which the next one begins. */
function block(lines, at, depth) {
  const line = lines[at];
  if (!line.trim()) return [null, at + 1];
  const fence = FENCE.exec(line);
  if (fence) return code(lines, at, fence[1]);
  const heading = HEADING.exec(line);
  if (heading) return [html`<h4 class="size${heading[1].length}">${inline(heading[2])}</h4>`, at + 1];
  if (ruled(line)) return [html`<hr />`, at + 1];
  if (depth < MOST_NESTED && QUOTE.test(line)) return quote(lines, at, depth);
  if (depth < MOST_NESTED && ITEM.test(line)) return list(lines, at, depth);
  if (ROW.test(line) && RULED.test(lines[at + 1] ?? "")) return table(lines, at);
  return paragraph(lines, at);
}

/** The first line from there on for which `ends` holds, or the end. */
function until(lines, at, ends) {
  let next = at;
  while (next < lines.length && !ends(lines[next])) next += 1;
  return next;
}

function code(lines, at, fence) {
  const end = until(lines, at + 1, (line) => line.trimStart().startsWith(fence));
  return [html`<pre tabindex="0"><code><${Raw} text=${lines.slice(at + 1, end).join("\n")} /></code></pre>`, end + 1];
}

function quote(lines, at, depth) {
  const end = until(lines, at, (line) => !QUOTE.test(line));
  return [html`<blockquote>${blocks(lines.slice(at, end).map((line) => line.replace(QUOTE, "")), depth + 1)}</blockquote>`, end];
}

/** Items of one kind; indented lines belong to the item above them. */
function list(lines, from, depth) {
  const [, margin, first] = ITEM.exec(lines[from]);
  const items = [];
  let at = from;
  for (let match; at < lines.length && (match = ITEM.exec(lines[at])) && match[1].length <= margin.length + 1 && (match[2] == null) === (first == null);) {
    const width = match[0].length;
    const end = until(lines, at + 1, (line) => line.trim() && indent(line) < Math.min(width, margin.length + 2));
    items.push([lines[at].slice(width), ...lines.slice(at + 1, end).map((line) => line.slice(Math.min(width, indent(line))))]);
    at = end;
  }
  const shown = items.map((item) => html`<li>${blocks(item, depth + 1)}</li>`);
  return [first == null ? html`<ul>${shown}</ul>` : html`<ol start=${Number(first)}>${shown}</ol>`, at];
}

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => inline(cell.trim()));

function table(lines, at) {
  const end = until(lines, at, (line) => !ROW.test(line));
  return [html`<div class="scroll" tabindex="0"><table><thead><tr>${cells(lines[at]).map((cell) => html`<th scope="col">${cell}</th>`)}</tr></thead>
    <tbody>${lines.slice(at + 2, end).map((line) => html`<tr>${cells(line).map((cell) => html`<td>${cell}</td>`)}</tr>`)}</tbody></table></div>`, end];
}

function paragraph(lines, at) {
  const end = until(lines, at + 1, (line) => !line.trim() || begins(line));
  return [html`<p>${inline(lines.slice(at, end).join("\n"))}</p>`, end];
}

// Ticks; marks of emphasis; a link or a picture; an address.
const TOKEN = /(`+)|(\*\*|__|~~|\*|_)|(!?)\[([^[\]\n]{1,500})\]\(([^()\s]{1,2000})\)|\bhttps?:\/\/[^\s<>"'`()[\]*]{1,2000}/g;
const ELEMENTS = { "**": "strong", __: "strong", "*": "em", _: "em", "~~": "s" };
const WORD = /[\p{L}\p{N}]/u;
const MOST_OPEN = 8;

/** The parts of a text within a block. */
function inline(text) {
  const open = [{ mark: null, parts: [] }];
  const without = new Set();
  const add = (part) => { if (part !== "") open.at(-1).parts.push(typeof part === "string" ? html`<${Raw} text=${part} />` : part); };
  const pattern = new RegExp(TOKEN);
  let at = 0;
  for (let match; (match = pattern.exec(text));) {
    const [all, ticks, mark, picture, label, address] = match;
    add(text.slice(at, match.index));
    at = pattern.lastIndex;
    if (ticks) at = pattern.lastIndex = span(text, at, ticks, without, add);
    else if (mark) emphasis(text, match.index, mark, open, add);
    else if (label) add(link(address, picture ? `picture: ${label}` : label, all));
    else {
      // It belongs to the sentence, not to the address.
      const plain = all.replace(/[.,;:!?]{1,8}$/, "");
      at = pattern.lastIndex = match.index + plain.length;
      add(link(plain, plain, plain));
    }
  }
  add(text.slice(at));
  while (open.length > 1) unfold(open);
  return open[0].parts;
}

/** Adds a span of code, or the ticks if none ends it; returns where the text goes on. */
function span(text, at, ticks, without, add) {
  const end = without.has(ticks) ? -1 : text.indexOf(ticks, at);
  if (end < 0) { without.add(ticks); add(ticks); return at; }
  add(html`<code><${Raw} text=${text.slice(at, end)} /></code>`);
  return end + ticks.length;
}

/** Begins or ends an emphasis, or adds the mark as text. */
function emphasis(text, at, mark, open, add) {
  const [before, after] = [text[at - 1] ?? " ", text[at + mark.length] ?? " "];
  const within = mark[0] === "_" && WORD.test(before) && WORD.test(after);
  const known = open.findLastIndex((each) => each.mark === mark);
  if (known > 0 && !within && !/\s/.test(before)) {
    while (open.length - 1 > known) unfold(open);
    const { parts } = open.pop();
    open.at(-1).parts.push(html`<${ELEMENTS[mark]}>${parts}<//>`);
  } else if (known < 0 && !within && !/\s/.test(after) && open.length < MOST_OPEN) open.push({ mark, parts: [] });
  else add(mark);
}

/** Turns an emphasis that nothing closes back into text. */
function unfold(open) {
  const { mark, parts } = open.pop();
  open.at(-1).parts.push(mark, ...parts);
}

/** A link that shows its host, if the address is http or https; any other address stays text. */
function link(address, label, all) {
  let url = null;
  try { url = new URL(address); } catch { return all; }
  if (!["http:", "https:"].includes(url.protocol) || !/^https?:\/\//i.test(address)) return all;
  return html`<a href=${url.href} target="_blank" rel="noopener noreferrer" title=${url.href}><${Raw} text=${label} /></a>${
    label !== address && html` <span class="hint">(${url.host})</span>`}`;
}

export function Markdown({ text }) {
  const shown = useMemo(() => blocks(text.split("\n"), 0), [text]);
  return html`<div class="text markdown">${shown}</div>`;
}
