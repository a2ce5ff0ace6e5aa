// Parts of which pages are made.

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { exact, pieces, relative } from "./format.js";

const TICK_MS = 5000;

/** Text from a sandbox or a caller, never as markup, with hidden characters made visible. */
export const Raw = ({ text }) => pieces(String(text ?? "")).map((piece) =>
  piece.hidden ? html`<span class="hidden-char" title="a character that is not visible">${piece.text}</span>` : piece.text);

export const Badge = ({ kind, children }) => html`<span class="badge ${kind || ""}">${children}</span>`;

const STATUS = { active: "good", paused: "warn", aborted: "bad", "budget-exceeded": "bad" };
export const StatusBadge = ({ status }) => html`<${Badge} kind=${STATUS[status]}>${status}<//>`;

const DECISION = { allow: "good", deny: "bad", pending: "warn" };
export const Decision = ({ decision }) =>
  decision ? html`<${Badge} kind=${DECISION[decision]}>${decision}<//>` : null;

// One clock for all times of the page.
const clock = { listeners: new Set(), timer: null };

function tick() {
  for (const listener of clock.listeners) listener(Date.now());
}

/** Draws the component again every few seconds. */
function useClock() {
  const [, setNow] = useState(0);
  useEffect(() => {
    clock.listeners.add(setNow);
    clock.timer ??= setInterval(tick, TICK_MS);
    return () => {
      clock.listeners.delete(setNow);
      if (clock.listeners.size) return;
      clearInterval(clock.timer);
      clock.timer = null;
    };
  }, []);
}

/** A relative time, with the exact one on hover. */
export function Time({ at }) {
  useClock();
  if (!at) return "–";
  return html`<time datetime=${at} title=${exact(at)}>${relative(at)}</time>`;
}

/** A used amount as a bar, and its limit. */
export function Bar({ label, used, limit, show }) {
  const share = limit ? Math.min(1, used / limit) : 0;
  const kind = share > 0.9 ? "bad" : share > 0.7 ? "warn" : "";
  return html`<div class="bar-row">
    <span>${label}</span>
    <progress class=${kind} max="1" value=${share} aria-label=${label}></progress>
    <span class="num">${show(used)}${limit ? ` of ${show(limit)}` : ""}</span>
  </div>`;
}

export const Loading = ({ what = "…" }) => html`<p class="state" role="status">Loading ${what}</p>`;
export const Empty = ({ children }) => html`<p class="state">${children}</p>`;

/** An error and what can be done about it. */
export const Failure = ({ error, again }) => html`<div class="state failure" role="alert">
  <p>${error instanceof TypeError ? "The control plane does not answer." : html`<${Raw} text=${error.message} />`}</p>
  ${error.field && html`<p>Field: <code><${Raw} text=${error.field} /></code></p>`}
  ${error.rule && html`<p>Rule: <code>${error.rule}</code></p>`}
  ${error.remedy && html`<p><${Raw} text=${error.remedy} /></p>`}
  ${again && html`<button onClick=${again}>Try again</button>`}
</div>`;

/** `[value, error, reload]` of what `load` returns; loaded again when one of `inputs` changes. */
export function useLoaded(load, inputs) {
  const [state, setState] = useState({});
  const [round, setRound] = useState(0);
  useEffect(() => {
    let current = true;
    load().then(
      (value) => current && setState({ value }),
      (error) => current && setState((before) => ({ value: before.value, error })),
    );
    return () => { current = false; };
  }, [...inputs, round]);
  return [state.value, state.error, () => setRound((number) => number + 1)];
}

/** A reference for a strip of links, whose current one is brought into sight when `current` changes. */
export function useStrip(current) {
  const strip = useRef(null);
  useEffect(() => {
    const link = strip.current?.querySelector("[aria-current]");
    if (link) strip.current.scrollLeft += link.getBoundingClientRect().left - strip.current.getBoundingClientRect().left - (strip.current.clientWidth - link.clientWidth) / 2;
  }, [current]);
  return strip;
}

/** A part of a page that `load` fetches when it is shown first. */
export function Later({ load, ...members }) {
  const [found, error, reload] = useLoaded(async () => ({ Page: await load() }), []);
  if (error) return html`<${Failure} error=${error} again=${reload} />`;
  return found ? html`<${found.Page} ...${members} />` : html`<${Loading} what="the page" />`;
}

/**
 * A table that sorts and filters. A column is `{name, show, key?, num?}`: `show(row)` is its cell,
 * `key(row)` is the value by which it is sorted and filtered.
 */
export function Table({ label, columns, rows, of, filter = true, empty = "There is nothing yet." }) {
  const [order, setOrder] = useState({ at: null, down: false });
  const [text, setText] = useState("");
  const wanted = text.toLowerCase();
  const key = (column, row) => (column.key ? column.key(row) : "");
  let shown = rows.filter((row) => !wanted
    || columns.some((column) => String(key(column, row) ?? "").toLowerCase().includes(wanted)));
  if (order.at !== null) {
    const column = columns[order.at];
    shown = [...shown].sort((a, b) => compare(key(column, a), key(column, b)) * (order.down ? -1 : 1));
  }
  const sort = (at) => setOrder({ at, down: order.at === at && !order.down });
  return html`<div class="table">
    ${filter && rows.length > 5 && html`<input type="search" value=${text} placeholder="Filter"
      aria-label=${`Filter ${label}`} onInput=${(event) => setText(event.target.value)} />`}
    ${shown.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><table>
      <thead><tr>${columns.map((column, at) => html`<th scope="col" class=${column.num ? "num" : ""}
        aria-sort=${order.at === at ? (order.down ? "descending" : "ascending") : undefined}>
        ${column.key
          ? html`<button class="sort" onClick=${() => sort(at)}>${column.name}</button>`
          : column.name}</th>`)}</tr></thead>
      <tbody>${shown.map((row) => html`<tr key=${of(row)}>${columns.map((column) =>
        html`<td class=${column.num ? "num" : ""}>${column.show(row)}</td>`)}</tr>`)}</tbody>
    </table></div>`}
    ${!shown.length && html`<${Empty}>${rows.length ? "Nothing matches the filter." : empty}<//>`}
  </div>`;
}

function compare(a, b) {
  if (a == null || b == null) return (a == null) - (b == null);
  return typeof a === "number" ? a - b : String(a).localeCompare(String(b));
}

/** A question that must be answered before something is done. */
export function Confirm({ title, children, yes, onYes, onNo }) {
  const [dialog, setDialog] = useState(null);
  useEffect(() => dialog?.showModal(), [dialog]);
  return html`<dialog ref=${setDialog} aria-label=${title} onCancel=${onNo}>
    <h2>${title}</h2>${children}
    <p class="actions"><button onClick=${onNo}>Cancel</button>
    <button class="primary" onClick=${onYes}>${yes}</button></p>
  </dialog>`;
}

/** A labelled choice of words; the empty one is shown as `any`. */
export const Choice = ({ label, value, among, onChoose }) => html`<label>${label}
  <select value=${value} onChange=${(event) => onChoose(event.target.value)}>
    ${among.map((word) => html`<option key=${word} value=${word}>${word || "any"}</option>`)}</select></label>`;

export const DECISIONS = ["", "allow", "deny", "pending"];
