// A unified diff as two columns: what the workspace has, and what is staged.

import { html, useState } from "../vendor/preact.js";
import { Raw } from "../parts.js";
import { number } from "../format.js";
import { hunksOf } from "../diff.js";

const MOST_ROWS = 1000;

const Line = ({ line, as: Tag }) => html`<${Tag}><${Raw} text=${line.text} />${
  line.unended && html`<span class="hint"> (no line feed at the end)</span>`}<//>`;

/** The number and the text of one side. */
function Side({ of, line, same }) {
  const kind = `${of} ${!line ? "none" : same ? "same" : "changed"}`;
  return html`<td class="${kind} at">${line?.number}</td><td class=${kind}>${line && html`<${Line} line=${line}
    as=${same ? "span" : of === "old" ? "del" : "ins"} />`}</td>`;
}

/** The first rows of the hunks, and how many there are in all. */
function cut(hunks, most) {
  let left = most;
  const shown = [];
  for (const hunk of hunks) {
    if (left <= 0) break;
    shown.push({ ...hunk, rows: hunk.rows.slice(0, left) });
    left -= hunk.rows.length;
  }
  return [shown, hunks.reduce((sum, hunk) => sum + hunk.rows.length, 0)];
}

export function Diff({ diff, path }) {
  const [whole, setWhole] = useState(false);
  const [hunks, rows] = cut(hunksOf(diff), whole ? Infinity : MOST_ROWS);
  return html`<table class="diff" aria-label=${`differences of ${path}`}>
    <colgroup><col class="at" /><col /><col class="at" /><col /></colgroup>
    <thead><tr><th scope="col" colspan="2">Workspace</th><th scope="col" colspan="2">Staged</th></tr></thead>
    ${hunks.map((hunk, at) => html`<tbody key=${at}><tr class="hunk"><td colspan="4">${hunk.title}</td></tr>
      ${hunk.rows.map(({ old, fresh, same }, row) => html`<tr key=${row}>
        <${Side} of="old" line=${old} same=${same} /><${Side} of="new" line=${fresh} same=${same} /></tr>`)}</tbody>`)}</table>
    ${!whole && rows > MOST_ROWS && html`<p class="actions"><button onClick=${() => setWhole(true)}>Show all ${number(rows)} lines</button></p>`}`;
}
