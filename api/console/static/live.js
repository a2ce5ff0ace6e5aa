// The sessions' present state: loaded once, then kept current by the event stream.

import { useEffect, useState } from "./vendor/preact.js";
import { get, ofSession, withQuery } from "./api.js";
import { followShared } from "./shared_events.js";
import { Usage } from "./usage.js";

// After a burst of events, the page draws once, and loads once what has changed.
const GATHER_MS = 250;
const MOST_LOADING = 4;
const PAGE = 500;
const MOST_SESSIONS = 2000;
const MOST_PENDING = 100;
// Commands whose end has come as an event: an older list may still have them.
const MOST_ENDED = 1000;
const NEWEST = 50;
const AGAIN_MS = 1000;
const MOST_TIMES = 60;

const denialKey = ({ session_id, incarnation, operation, rule }) => [session_id, incarnation, operation, rule].join(" ");

/** What all pages of this tab share. A listener is called after each change. */
export class Live {
  constructor() {
    this.sessions = new Map();
    this.denials = new Map();
    this.usage = new Usage();
    this.state = "loading";
    this.error = null;
    // The machines of the cluster, for those who see all sessions; none, if the server is one machine.
    this.nodes = [];
    this.approvals = 0;
    this.pending = [];
    this.newest = null;
    this.listeners = new Set();
    // Called with each event.
    this.hearers = new Set();
    this.stale = new Set();
    this.ended = new Set();
    this.awaited = new Map();
    // By new session: its parent.
    this.parents = new Map();
    this.stop = new AbortController();
  }

  async start() {
    try {
      // The stream begins before the list, so that nothing falls between them.
      followShared((event) => this.heard(event), (state, error) => this.connected(state, error), this.stop.signal);
      this.usage.follow(() => this.changed({}), this.stop.signal);
      await Promise.all([this.loadSessions(), this.countApprovals(), this.loadDenials(), this.loadNodes()]);
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
    } while (cursor && this.sessions.size < MOST_SESSIONS);
    await this.loadChildren([...this.sessions.values()]);
  }

  /** Loads the children of these sessions, and theirs: the list has only sessions that no other has spawned. */
  async loadChildren(sessions) {
    const parents = sessions.filter(({ children }) => children?.some((id) => !this.sessions.has(id)));
    for (const { id: parent } of parents) {
      const { items } = await get(withQuery("/api/sessions", { parent, limit: PAGE }));
      this.listed(items);
      if (this.sessions.size < MOST_SESSIONS) await this.loadChildren(items);
    }
  }

  /** Keeps these sessions; of several with the same id, the latest. */
  listed(sessions) {
    for (const session of sessions) {
      const known = this.sessions.get(session.id);
      if (!known || known.incarnation <= session.incarnation) this.keep(session);
    }
  }

  /** Keeps a session with the ids of its running commands, without those whose end was heard. */
  keep(session) {
    const ids = session.commands.filter((each) => each.status === "running" && !this.ended.has(each.command_id)).map((each) => each.command_id);
    this.sessions.set(session.id, { ...session, running: new Set(ids) });
  }

  /** Takes the connection's state; after a lost connection, lists sessions again, because events may be missing. */
  async connected(state, error) {
    const again = state === "live" && this.state === "reconnecting";
    this.changed({ state, error });
    if (again) await Promise.all([this.loadSessions(), this.countApprovals()]).then(() => this.changed({}), () => {});
  }

  async loadDenials() {
    for (const group of (await get("/api/audit/denials")).items) {
      const known = this.denials.get(denialKey(group));
      if (!known) this.denials.set(denialKey(group), group);
    }
  }

  async loadNodes() {
    this.nodes = (await get("/api/nodes")).items;
  }

  async countApprovals() {
    this.pending = (await get(withQuery("/api/approvals", { status: "pending", limit: MOST_PENDING }))).items;
    this.approvals = this.pending.length;
  }

  heard(event) {
    this.newest = event;
    for (const hear of this.hearers) hear(event);
    if (event.decision === "deny") this.denied(event);
    const session = this.sessions.get(event.session_id);
    if (event.operation === "session.create" && event.args.parent) this.parents.set(event.session_id, event.args.parent);
    if (event.session_id && (!session || event.operation.startsWith("session."))) this.stale.add(event.session_id);
    else if (session) this.count(session, event);
    if (event.operation.startsWith("approval")) this.stale.add("");
    this.gather();
  }

  denied(event) {
    const key = denialKey(event);
    const times = (this.denials.get(key)?.times ?? 0) + (event.args.repeats ?? 1);
    const { session_id, incarnation, operation, rule } = event;
    this.denials.set(key, { session_id, incarnation, operation, rule, times, latest: event });
  }

  /** Updates a session by an event, without a request. */
  count(session, { operation, decision, args, time }) {
    const running = new Set(session.running);
    if (operation === "command.start" && decision === "allow") running.add(args.command_id);
    if (operation === "command.exit") {
      running.delete(args.command_id);
      this.ended.add(args.command_id);
      if (this.ended.size > MOST_ENDED) this.ended.delete(this.ended.values().next().value);
    }
    this.sessions.set(session.id, {
      ...session, running, last_activity_at: time,
      activity: session.activity === "suspended" ? "suspended" : running.size ? "running" : "idle",
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
      else if (this.sessions.has(id)) {
        this.keep(await get(ofSession(id)));
        await this.loadChildren([this.sessions.get(id)]);
      }
      else await this.await(id);
    } catch (error) {
      if (error.status === 404) this.sessions.delete(id);
    }
  }

  /** Asks again for a new session until it is listed: that is once its sandbox runs, which no event reports. */
  async await(id) {
    this.listed((await get(withQuery("/api/sessions", { limit: NEWEST, parent: this.parents.get(id) }))).items);
    const times = (this.awaited.get(id) ?? 0) + 1;
    if (this.sessions.has(id) || times > MOST_TIMES) {
      this.parents.delete(id);
      return this.awaited.delete(id);
    }
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
