// A session and its record: live events, and earlier ones on request.

import { useEffect, useState } from "../vendor/preact.js";
import { follow, get, ofSession, withQuery } from "../api.js";

const MOST_EVENTS = 1000;
const PAGE = 200;
const GATHER_MS = 500;
// A sandbox's use changes without an event, so it is read again while the page is shown.
const USAGE_MS = 5000;

/**
 * Follows a session's events after that number, out of those of all sessions that `live` hears: a stream of its own
 * would be one connection more for each tab. What is missing between two is read.
 */
function followIn(live, { id, incarnation }, last, onEvent, onState, signal) {
  let [reading, wanted, state] = [false, false, null];
  const take = (event) => { if (event.seq > last) { last = event.seq; onEvent(event); } };
  const read = async () => {
    wanted = true;
    if (reading) return;
    reading = true;
    try {
      while (wanted && !signal.aborted) {
        wanted = false;
        const items = await page(id, last, PAGE);
        items.forEach(take);
        wanted ||= items.length === PAGE;
      }
    } catch { /* the next event, or connection, has it read again */ }
    reading = false;
  };
  const hear = (event) => {
    if (event.session_id !== id || event.incarnation !== incarnation) return;
    if (!reading && event.seq === last + 1) take(event);
    else if (event.seq > last) read();
  };
  const changed = () => {
    if (live.state === state) return;
    state = live.state;
    onState(state);
    if (state === "live") read();
  };
  live.hearers.add(hear);
  live.listeners.add(changed);
  signal.addEventListener("abort", () => { live.hearers.delete(hear); live.listeners.delete(changed); });
  changed();
  read();
}

/**
 * `{session, events, state, error, older, refresh, reload}`: the session and its latest events, newest first.
 * `refresh` asks for the session again, `reload` begins anew. A handle has no `live`.
 */
export function useSession(id, live) {
  const [found, setFound] = useState({ events: [], state: "loading" });
  const [round, setRound] = useState(0);
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
    change({ events: [] });
    load().then((session) => {
      if (!session || stop.signal.aborted) return;
      const from = Math.max(0, session.telemetry.events_emitted - PAGE);
      const say = (state) => change({ state });
      if (live) followIn(live, session, from, heard, say, stop.signal);
      else follow(ofSession(id, "events"), from, "seq", heard, say, stop.signal);
    });
    const again = setInterval(() => document.visibilityState === "visible" && load(), USAGE_MS);
    return () => { stop.abort(); clearTimeout(timer); clearInterval(again); };
  }, [id, round]);

  async function older() {
    const items = await before(id, found.events.at(-1)?.seq ?? 1);
    setFound((now) => ({ ...now, events: [...now.events, ...items] }));
  }
  const refresh = () => get(ofSession(id)).then((session) => change({ session }), (error) => change({ error }));
  return { ...found, older, refresh, reload: () => setRound((number) => number + 1) };
}

const page = async (id, after, limit) => (await get(withQuery(ofSession(id, "audit"), { after, limit }))).items;

/** The events directly before that number, newest first. */
export async function before(id, seq) {
  const after = Math.max(0, seq - 1 - PAGE);
  return seq > 1 ? (await page(id, after, seq - 1 - after)).reverse() : [];
}

/** The events directly after that number, newest first. */
export const after = async (id, seq) => (await page(id, seq, PAGE)).reverse();

/** The number of the first event at that time or later, of `last` in all: events are in the order of their times. */
export async function seqAt(id, time, last) {
  let [from, to] = [1, last + 1];
  while (from < to) {
    const middle = Math.floor((from + to) / 2);
    const [event] = await page(id, middle - 1, 1);
    if (event && Date.parse(event.time) < time) from = middle + 1;
    else to = middle;
  }
  return from;
}
