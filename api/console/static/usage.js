// What live sessions and the host use, from the samples that the control plane takes.

import { get, withQuery } from "./api.js";

const MOST_SAMPLES = 60;
const FIRST_SECONDS = 10;

const keyOf = ({ id, incarnation }) => `${id} ${incarnation}`;
const joined = (before, after) => [...(before ?? []), ...after].slice(-MOST_SAMPLES);

/** Loads new samples while the page is visible. */
export class Usage {
  constructor() {
    this.round = 0;
    this.host = null;
    // When the latest sample came, in seconds.
    this.at = null;
    this.sessions = new Map();
    this.interval = FIRST_SECONDS;
  }

  /** The session's samples `{cpu_percent, memory_bytes, pids, disk}`, the latest last, or nothing. */
  of(session) {
    return this.sessions.get(keyOf(session));
  }

  /** Calls `changed` after each load; a failure shows in the connection's state and is repeated. */
  follow(changed, signal) {
    const next = async () => {
      if (document.visibilityState === "visible") await this.load(signal).then(changed, () => {});
      if (!signal.aborted) this.timer = setTimeout(next, this.interval * 1000);
    };
    signal.addEventListener("abort", () => clearTimeout(this.timer));
    next();
  }

  async load(signal) {
    const found = await get(withQuery("/api/usage", { after: this.round }), { signal });
    // A control plane counts its samples from its start.
    if (found.round < this.round) {
      Object.assign(this, { round: 0, host: null, sessions: new Map() });
      return this.load(signal);
    }
    this.add(found);
  }

  add({ round, interval, host, items }) {
    const fresh = round > this.round;
    Object.assign(this, { round, interval });
    if (fresh) this.at = Date.now() / 1000;
    if (host) {
      const before = this.host ?? {};
      this.host = {
        ...host,
        cpu_percent: joined(before.cpu_percent, host.cpu_percent),
        memory_used: joined(before.memory_used, host.memory_used),
        disk_used: joined(before.disk_used, host.disk_used),
      };
    }
    // An entry that has not changed stays the same object, and is not drawn again.
    this.sessions = new Map(items.map((item) => {
      const before = this.sessions.get(keyOf(item));
      return [keyOf(item), before && !fresh ? before : {
        ...item,
        cpu_percent: joined(before?.cpu_percent, item.cpu_percent),
        memory_bytes: joined(before?.memory_bytes, item.memory_bytes),
      }];
    }));
  }
}
