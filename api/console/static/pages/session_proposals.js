// What a session has staged: shown, committed or discarded.

import { html, useEffect, useState } from "../vendor/preact.js";
import { credential, get, ofSession, send, withQuery } from "../api.js";
import { Confirm, Empty, Failure, Loading, Raw } from "../parts.js";
import { number } from "../format.js";
import { Change } from "./proposal_view.js";

const PAGE = 50;
// At most this many are unfolded at the same time.
const MOST_OPEN = 5;
const ENDS = new Set(["proposal.end", "proposal.rollback"]);
const CHANGES = /^(world\.(write|delete|run|exec)|shell|file\.|command\.exit|pty\.)/;

const page = (id, after) => get(withQuery(ofSession(id, "proposals"), { after, limit: PAGE }));
const newest = (events, of) => events.find(of)?.seq ?? 0;

/**
 * `{items, next, refused, counts, error, stale, reload, more}`. Loaded again after a commit or a
 * rollback; else it stays as it was reviewed, and `stale` says that there may be more.
 */
function useProposals({ session, events }) {
  const [list, setList] = useState({});
  const [round, setRound] = useState(0);
  const ended = newest(events, (event) => ENDS.has(event.operation));
  const change = (members) => setList((now) => ({ ...now, ...members }));
  useEffect(() => {
    let current = true;
    const looked = session.telemetry.events_emitted;
    page(session.id).then((found) => current && setList({ ...found, looked }), (error) => current && change({ error }));
    return () => { current = false; };
  }, [session.id, ended, round]);
  const more = () => page(session.id, list.next).then(
    (found) => change({ next: found.next, items: [...list.items, ...found.items] }), (error) => change({ error }));
  const stale = newest(events, (event) => CHANGES.test(event.operation)) > Math.max(list.looked ?? 0, ended);
  return { ...list, stale, more, reload: () => setRound((times) => times + 1) };
}

const short = (fingerprint) => fingerprint?.slice(0, "sha256:".length + 12) ?? "nothing";

/** A path, and what is the matter with it. */
const Concern = ({ path, children }) => html`<li><span class="grow"><code class="line"><${Raw} text=${path} /></code>
  <span class="hint line">${children}</span></span></li>`;

/** Why nothing was committed, by path. */
const Conflicts = ({ error }) => html`<${Failure} error=${error} />
  <ul class="rows" aria-label="conflicts">
    ${(error.conflicts ?? []).map(({ ref, expected, actual }, at) => html`<${Concern} key=${at} path=${ref}>
      ${expected ? `reviewed ${short(expected)}, now ${short(actual)}` : `the workspace has changed; now ${short(actual)}`}<//>`)}
    ${(error.refused ?? []).map(({ ref, reason }, at) => html`<${Concern} key=${at} path=${ref}><${Raw} text=${reason} /><//>`)}</ul>`;

const Refused = ({ refused, count }) => refused.length > 0 && html`<h2>Can't be committed</h2>
  <ul class="rows card" aria-label="refused changes">${refused.map(({ ref, reason }, at) => html`
    <${Concern} key=${at} path=${ref}><${Raw} text=${reason} /><//>`)}</ul>
  ${count > refused.length && html`<p class="hint">The first ${number(refused.length)} of ${number(count)}.</p>`}`;

/** The body that commits exactly these, as they were looked at. */
export const reviewed = (changes) => ({
  expected: Object.fromEntries(changes.map(({ ref, fingerprint, mode }) => [ref, { fingerprint, mode }])),
});

const countsText = ({ write, delete: removed }) => `${number(write)} written, ${number(removed)} deleted`;

const QUESTIONS = {
  commit: ["Commit?", "Commit", "They are written to the workspace, all or none. What differs by now from what is shown is a conflict."],
  rollback: ["Roll back?", "Roll back", "Everything that is staged is discarded, also what is not shown here. It can't be had back."],
};

function Question({ asked, onYes, onNo }) {
  const [title, yes, text] = QUESTIONS[asked.act];
  return html`<${Confirm} title=${title} yes=${yes} onYes=${onYes} onNo=${onNo}>
    ${asked.changes && html`<p>${number(asked.changes.length)} of the listed changes are committed.</p>`}
    <p>${text} The session's sandbox is replaced at its next use; nothing may run in it now.</p><//>`;
}

/** `[state, commit, rollback]`; `state` is what is being done, how that ended, or why it failed. */
function useDecision(session, list) {
  const [state, setState] = useState({});
  const act = async (busy, name, body, done) => {
    setState({ busy });
    try {
      setState({ done: `${done}: ${countsText(await send("POST", ofSession(session.id, "proposals", name), body))}.` });
    } catch (failed) { setState({ failed }); }
    list.reload();
  };
  return [state, (changes) => act("Committing", "commit", reviewed(changes), "Committed"),
    () => act("Rolling back", "rollback", {}, "Discarded")];
}

function Tools({ list, chosen, host, busy, ask }) {
  const none = busy || !list.items.length;
  return html`<div class="actions file-tools">
    ${host && html`<button class="primary" disabled=${none} onClick=${() => ask({ act: "commit", changes: list.items })}>
        ${list.next ? `Commit the ${number(list.items.length)} listed` : "Commit all"}</button>
      <button disabled=${busy || !chosen.length} onClick=${() => ask({ act: "commit", changes: chosen })}>Commit the chosen ${chosen.length || ""}</button>`}
    <button class="danger" disabled=${busy || (none && !list.refused.length)} onClick=${() => ask({ act: "rollback" })}>Roll back</button>
    <button class=${list.stale ? "stale" : ""} disabled=${busy} onClick=${list.reload}>Refresh</button>
    <span class="hint" role="status">${busy ?? (list.stale ? "there may be more by now"
      : `${countsText(list.counts)}${host ? "" : "; only a key may commit"}`)}</span></div>`;
}

function Staged({ session, list, host }) {
  const [names, setNames] = useState(new Set());
  const [asked, ask] = useState(null);
  const [{ busy, done, failed }, commit, rollback] = useDecision(session, list);
  const chosen = list.items.filter((change) => names.has(change.ref));
  const choose = (ref) => setNames((now) => {
    const next = new Set(now);
    if (!next.delete(ref)) next.add(ref);
    return next;
  });
  const decide = () => {
    ask(null);
    setNames(new Set());
    if (asked.act === "commit") commit(asked.changes); else rollback();
  };
  return html`<${Tools} list=${list} chosen=${chosen} host=${host} busy=${busy} ask=${ask} />
    ${done && html`<p class="notice" role="status">${done}</p>`}
    ${failed && html`<${Conflicts} error=${failed} />`}
    ${list.items.length ? html`<ul class="changes" aria-label="changes">${list.items.map((change) => html`<${Change}
        key=${`${change.ref} ${change.fingerprint}`} change=${change} chosen=${names.has(change.ref)} onChoose=${host && choose} open=${list.items.length <= MOST_OPEN} />`)}</ul>`
      : html`<${Empty}>Nothing is staged${list.refused.length ? " that can be committed" : ""}.<//>`}
    ${list.next && html`<p class="actions"><button onClick=${list.more}>Show more</button></p>`}
    <${Refused} refused=${list.refused} count=${list.counts.refused} />
    ${asked && html`<${Question} asked=${asked} onYes=${decide} onNo=${() => ask(null)} />`}`;
}

export function Proposals({ found }) {
  const list = useProposals(found);
  const { session } = found;
  if (session.termination) return html`<${Empty}>The session has ended, and what it had staged is gone.<//>`;
  if (!list.items) return list.error ? html`<${Failure} error=${list.error} again=${list.reload} />` : html`<${Loading} what="proposals" />`;
  return html`${list.error && html`<${Failure} error=${list.error} again=${list.reload} />`}
    <${Staged} session=${session} list=${list} host=${!credential().session} />`;
}
