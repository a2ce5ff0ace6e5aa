// One session: its state, and a page for each part of it.

import { html, useEffect, useState } from "../vendor/preact.js";
import { credential, follow, get, ofSession, send, withQuery } from "../api.js";
import { Badge, Confirm, Failure, Loading, Raw, StatusBadge, Time } from "../parts.js";
import { Activity } from "./session_activity.js";
import { Files } from "./session_files.js";
import { LevelAndPolicy } from "./session_level.js";
import { Processes } from "./session_processes.js";
import { Terminals } from "./session_terminals.js";

const TABS = [
  ["activity", "Activity"], ["processes", "Processes"], ["terminals", "Terminals"],
  ["files", "Files"], ["level", "Level and policy"], ["raw", "Raw"],
];
const MOST_EVENTS = 1000;
const FIRST_EVENTS = 200;
const GATHER_MS = 500;
// What a sandbox uses changes without an event, so it is read again while it is looked at.
const USAGE_MS = 5000;

/** `{session, events, state, error, older}`: the session and its latest events, newest first. */
function useSession(id) {
  const [found, setFound] = useState({ events: [], state: "loading" });
  const change = (members) => setFound((before) => ({ ...before, ...members }));
  useEffect(() => {
    const stop = new AbortController();
    let timer = null;
    let waiting = [];
    const load = () => get(ofSession(id), { signal: stop.signal }).then(
      (session) => { change({ session, error: null }); return session; },
      (error) => { if (!stop.signal.aborted) change({ error }); });
    const gather = () => {
      timer = null;
      const fresh = waiting.reverse();
      waiting = [];
      setFound((before) => ({ ...before, events: [...fresh, ...before.events].slice(0, MOST_EVENTS) }));
      load();
    };
    const heard = (event) => { waiting.push(event); timer ??= setTimeout(gather, GATHER_MS); };
    load().then((session) => session && follow(ofSession(id, "events"),
      Math.max(0, session.telemetry.events_emitted - FIRST_EVENTS), "seq", heard,
      (state) => change({ state }), stop.signal));
    const again = setInterval(() => document.visibilityState === "visible" && load(), USAGE_MS);
    return () => { stop.abort(); clearTimeout(timer); clearInterval(again); };
  }, [id]);

  async function older() {
    const first = found.events.at(-1)?.seq ?? 1;
    const after = Math.max(0, first - 1 - FIRST_EVENTS);
    const page = await get(withQuery(ofSession(id, "audit"), { after, limit: first - 1 - after }));
    setFound((before) => ({ ...before, events: [...before.events, ...page.items.reverse()] }));
  }
  return { ...found, older };
}

function Actions({ session }) {
  const [asking, setAsking] = useState(null);
  const [error, setError] = useState(null);
  const act = async (method, ...rest) => {
    setAsking(null);
    setError(null);
    try { await send(method, ofSession(session.id, ...rest)); } catch (failed) { setError(failed); }
  };
  if (credential().session) return null;
  if (!["active", "paused"].includes(session.status)) return null;
  return html`<p class="actions">
    ${session.status === "active"
      ? html`<button onClick=${() => act("POST", "pause")}>Pause</button>`
      : html`<button onClick=${() => act("POST", "resume")}>Resume</button>`}
    <button onClick=${() => act("POST", "interrupt")}>Interrupt</button>
    <button onClick=${() => setAsking("complete")}>Complete</button>
    <button class="danger" onClick=${() => setAsking("abort")}>Abort</button></p>
    ${error && html`<${Failure} error=${error} />`}
    ${asking && html`<${Confirm} title="End ${session.id}?" yes=${asking === "abort" ? "Abort" : "Complete"}
      onYes=${() => act("POST", asking)} onNo=${() => setAsking(null)}>
      <p>Everything that runs is ended, and its sandbox is removed. The workspace and the record stay.</p><//>`}`;
}

function Tab({ tab, found, query }) {
  const { session } = found;
  if (tab === "processes") return html`<${Processes} session=${session} query=${query} />`;
  if (tab === "terminals") return html`<${Terminals} session=${session} query=${query} />`;
  if (tab === "files") return html`<${Files} session=${session} query=${query} />`;
  if (tab === "level") return html`<${LevelAndPolicy} session=${session} />`;
  if (tab === "raw") return html`<pre>${JSON.stringify(session, null, 2)}</pre>`;
  return html`<${Activity} found=${found} query=${query} />`;
}

export function Session({ id, tab = "activity", query }) {
  const found = useSession(id);
  const { session, error } = found;
  if (!session) return error ? html`<${Failure} error=${error} />` : html`<${Loading} what=${id} />`;
  return html`<h1><${Raw} text=${session.id} /></h1>
    <p class="actions"><${StatusBadge} status=${session.status} /> <${Badge}>${session.activity}<//>
      <${Badge} kind=${`level-${session.permission_level}`}>${session.permission_level}<//>
      <span>owner ${session.owner}</span> <span>created <${Time} at=${session.created_at} /></span>
      ${session.termination && html`<span>ended <${Time} at=${session.termination.terminated_at} />:
        ${session.termination.rationale_code}</span>`}
      ${found.state === "reconnecting" && html`<span class="connection">reconnecting</span>`}</p>
    <${Actions} session=${session} />
    ${error && html`<${Failure} error=${error} />`}
    <nav class="tabs" aria-label="Parts of the session">${TABS.map(([name, title]) => html`
      <a href="#/sessions/${encodeURIComponent(id)}/${name}" aria-current=${tab === name ? "page" : undefined}>${title}</a>`)}</nav>
    <${Tab} tab=${tab} found=${found} query=${query} />`;
}
