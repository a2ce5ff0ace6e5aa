// The events of all sessions, in one stream for all tabs: a browser opens at most six connections to an address.

import { credential, follow } from "./api.js";

const PATH = "/api/events";
// A tab that takes the stream over may begin a little behind what others have heard.
const MOST_RECENT = 1000;

/** A name that tabs with the same credential share, and that does not reveal it. */
async function sharedName() {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(credential().token));
  return `paddock.events.${[...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** Whether tabs can find each other: browsers allow it at secure addresses and those of the own machine. */
const canShare = () => Boolean(globalThis.crypto?.subtle && navigator.locks && globalThis.BroadcastChannel);

/**
 * Follows the events until `signal` aborts it: `onEvent` and `onState` are as for `follow`.
 *
 * The tab that has the lock reads the stream and passes the events on. When it is gone, the next tab
 * continues after the last event that it has got.
 */
export async function followShared(onEvent, onState, signal) {
  if (!canShare()) return follow(PATH, null, "id", onEvent, onState, signal);
  const name = await sharedName();
  if (signal.aborted) return undefined;
  const channel = new BroadcastChannel(name);
  const known = { last: null, state: null, reads: false, recent: new Set() };
  const heard = (event, position) => {
    if (known.recent.has(event.hash)) return;
    known.recent.add(event.hash);
    if (known.recent.size > MOST_RECENT) known.recent.delete(known.recent.values().next().value);
    known.last = position;
    onEvent(event);
  };
  const is = (state, error) => { known.state = state; onState(state, error); };
  channel.onmessage = ({ data }) => {
    if (data.asks) { if (known.reads && known.state) channel.postMessage({ state: known.state }); return; }
    if (known.reads) return;
    if (data.event) heard(data.event, data.position);
    else is(data.state, data.error && new Error(data.error));
  };
  channel.postMessage({ asks: true });
  const read = () => {
    // After an interruption the stream goes on behind the last event; without one, the page loads its lists again.
    if (known.state === "live" && known.last === null) is("reconnecting");
    known.reads = true;
    const tell = (event, position) => { channel.postMessage({ event, position }); heard(event, position); };
    const say = (state, error) => { channel.postMessage({ state, error: error?.message }); is(state, error); };
    return follow(PATH, known.last, "id", tell, say, signal);
  };
  try {
    await navigator.locks.request(name, { signal }, read);
  } catch (error) {
    if (!signal.aborted) throw error;
  } finally {
    channel.close();
  }
  return undefined;
}
