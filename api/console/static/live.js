// Sessions as they are now: loaded once, then kept up by the event stream.

import { useEffect, useState } from "./vendor/preact.js";
import { follow, get, ofSession, withQuery } from "./api.js";

const MOST_EVENTS = 500;
// A burst of events makes the page draw once, and load what has changed once.
const GATHER_MS = 250;
const MOST_LOADING = 4;
const PAGE = 500;
const DENIALS = 200;
const NEWEST = 50;
const AGAIN_MS = 1000;
const MOST_TIMES = 60;

/** What all pages of this tab share. A listener is called after each change. */
export class Live {
  constructor() {
    this.sessions = new Map();
    this.latest = [];
    this.state = "loading";
    this.error = null;
    this.approvals = 0;
    this.listeners = new Set();
    this.stale = new Set();
    this.awaited = new Map();
    this.stop = new AbortController();
  }

  async start() {
    try {
      // The stream begins before the list, so that nothing falls between them.
      follow("/api/events", null, "id", (event) => this.heard(event), (state, error) => this.changed({ state, error }), this.stop.signal);
      await Promise.all([this.loadSessions(), this.countApprovals(), this.loadDenials()]);
      this.changed({ loaded: true });
    } catch (error) {
      this.changed({ error });
    }
  }

  async loadSessions() {
    let cursor = null;
    do {
      const page = await get(withQuery("/api/sessions", { limit: PAGE, cursor }));
      this.listed(page.items);
      cursor = page.next;
    } while (cursor && this.sessions.size < 2000);
  }

  /** Of sessions with the same id, the latest is kept. */
  listed(sessions) {
    for (const session of sessions) {
      const known = this.sessions.get(session.id);
      if (!known || known.incarnation <= session.incarnation) this.sessions.set(session.id, session);
    }
  }

  async loadDenials() {
    const known = (await get(withQuery("/api/audit", { decision: "deny", limit: DENIALS }))).items;
    this.latest.push(...known.filter((event) => this.latest.every((other) => other.id !== event.id)));
  }

  async countApprovals() {
    this.approvals = (await get("/api/approvals?status=pending&limit=100")).items.length;
  }

  heard(event) {
    this.latest.unshift(event);
    this.latest.length = Math.min(this.latest.length, MOST_EVENTS);
    const session = this.sessions.get(event.session_id);
    if (event.session_id && (!session || event.operation.startsWith("session."))) this.stale.add(event.session_id);
    else if (session) this.count(session, event);
    if (event.operation.startsWith("approval")) this.stale.add("");
    this.gather();
  }

  /** What an event says of its session, without asking for the session again. */
  count(session, event) {
    const running = event.operation === "command.start" && event.decision === "allow" ? 1
      : event.operation === "command.exit" ? -1 : 0;
    const count = Math.max(0, (session.running ?? session.commands.length) + running);
    this.sessions.set(session.id, {
      ...session, running: count, last_activity_at: event.time,
      activity: session.activity === "suspended" ? "suspended" : count ? "running" : "idle",
    });
  }

  gather() {
    this.timer ??= setTimeout(async () => {
      this.timer = null;
      this.changed({});
      const stale = [...this.stale];
      this.stale.clear();
      for (let at = 0; at < stale.length; at += MOST_LOADING) {
        await Promise.all(stale.slice(at, at + MOST_LOADING).map((id) => this.load(id)));
      }
      if (stale.length) this.changed({});
    }, GATHER_MS);
  }

  async load(id) {
    try {
      if (id === "") await this.countApprovals();
      else if (this.sessions.has(id)) this.sessions.set(id, await get(ofSession(id)));
      else await this.await(id);
    } catch (error) {
      if (error.status === 404) this.sessions.delete(id);
    }
  }

  /** A session whose creation is on record can be seen once its sandbox runs: no event says when. */
  async await(id) {
    this.listed((await get(withQuery("/api/sessions", { limit: NEWEST }))).items);
    const times = (this.awaited.get(id) ?? 0) + 1;
    if (this.sessions.has(id) || times > MOST_TIMES) return this.awaited.delete(id);
    this.awaited.set(id, times);
    setTimeout(() => { this.stale.add(id); this.gather(); }, AGAIN_MS);
  }

  changed(members) {
    Object.assign(this, members);
    for (const listener of this.listeners) listener();
  }

  close() {
    this.stop.abort();
    clearTimeout(this.timer);
  }
}

/** Draws the component again after each change. */
export function useLive(live) {
  const [, draw] = useState(0);
  useEffect(() => {
    const listener = () => draw((number) => number + 1);
    live.listeners.add(listener);
    return () => live.listeners.delete(listener);
  }, [live]);
  return live;
}
