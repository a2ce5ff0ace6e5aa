// A session's runs: those that this page has sent come as events, others from the timeline.

import { get, ofSession, send, streamed, withQuery } from "../api.js";
import { hasEnded, heard, joined, newRun, own, withTimeline, withTurn } from "./run_thread.js";

const PAGE = 100;
const MOST_RUNS = 30;
const MOST_CHARACTERS = 16 * 1024 * 1024;
// Text comes in many small pieces, which are drawn together.
const GATHER_MS = 50;

/** A listener is called after each change. `waiting` are messages for the next run. */
export class Conversation {
  constructor(id) {
    Object.assign(this, { id, runs: new Map(), waiting: [], gone: 0, loaded: false, error: null });
    // About the last message: why it failed, the outcome of a run that did not begin, whether it is accepted.
    Object.assign(this, { failed: null, refused: null, sending: false });
    // How far the timeline was read; counted anew in each round.
    Object.assign(this, { seq: 0, round: 0 });
    this.listeners = new Set();
    this.stop = new AbortController();
  }

  /** The latest run, if it has not ended. */
  get running() {
    const latest = this.shown.at(-1);
    return this.loaded && latest && !hasEnded(own(latest)) ? latest : null;
  }

  /** The runs, oldest first. */
  get shown() {
    return [...this.runs.values()].sort((a, b) => a.turn - b.turn);
  }

  /** Reads new entries of the timeline, and how its runs ended; reads once more if it is called meanwhile. */
  async load() {
    this.wanted = true;
    if (this.loading) return;
    this.loading = true;
    try {
      while (this.wanted) { this.wanted = false; await this.read(); }
      this.changed({ loaded: true, error: null });
    } catch (error) {
      if (!this.stop.signal.aborted) this.changed({ error });
    }
    this.loading = false;
  }

  async read() {
    const { signal } = this.stop;
    const { round } = this;
    for (let after = this.seq; after != null;) {
      const { items, next } = await get(withQuery(ofSession(this.id, "timeline"), { after, limit: PAGE }), { signal });
      if (round !== this.round) return;
      this.seq = items.at(-1)?.seq ?? this.seq;
      for (const entry of items) if (entry.role === "user" && !this.runs.get(entry.turn_number)?.live) this.begun([entry.content]);
      this.runs = withTimeline(this.runs, items);
      this.forget();
      after = next;
    }
    const open = this.shown.filter((run) => !run.live && !hasEnded(own(run)));
    for (const { turn } of open) {
      const found = await get(ofSession(this.id, "turns", turn), { signal });
      const run = this.runs.get(turn);
      if (run && !run.live) this.runs.set(turn, withTurn(run, found));
    }
  }

  /** Sends messages; true once a run has them. Their run goes on if the page is left. */
  async send(texts, members) {
    const messages = texts.map((content) => ({ role: "user", content }));
    return this.follow("send", texts, { messages, ...members });
  }

  /** Runs the model with what is said and queued so far. */
  async render(members) {
    return this.follow("render", [], members);
  }

  /** Ends the run; the next one begins with the message, if there is one. */
  async interrupt(message) {
    this.changed({ failed: null });
    try {
      await send("POST", ofSession(this.id, "interrupt"), message ? { message } : {});
      if (message) this.changed({ waiting: [...this.waiting, message] });
      return true;
    } catch (failed) {
      this.changed({ failed });
      return false;
    }
  }

  /** Resolves when it is accepted or has failed; the run's events are followed to its end. */
  follow(action, texts, json) {
    const others = this.running?.turn ?? null;
    this.changed({ failed: null, refused: null, sending: true });
    return new Promise((resolve) => {
      let answered = false;
      const answer = (accepted) => {
        if (!answered) this.changed({ sending: false });
        answered = true;
        resolve(accepted);
      };
      this.take(action, texts, json, others, answer).then(() => answer(false), (failed) => {
        if (!this.stop.signal.aborted) this.changed({ failed });
        answer(false);
      });
    });
  }

  async take(action, texts, json, others, answer) {
    const stop = new AbortController();
    const signal = AbortSignal.any([this.stop.signal, stop.signal]);
    let turn = null;
    try {
      for await (const { name, data } of streamed(ofSession(this.id, action), signal, undefined, json)) {
        if (!data) continue;
        if (turn === null && name !== "start") return this.changed({ refused: data.outcome ?? { tag: "error", message: data.detail, metadata: {} } });
        if (turn === null) {
          turn = data.turn_number;
          const ours = this.begin(turn, texts, others);
          answer(true);
          if (ours) continue;
          return stop.abort(); // its events come in already
        }
        this.hear(turn, name, data);
      }
      const run = this.runs.get(turn);
      if (run && !hasEnded(own(run))) this.lose();
    } catch (error) {
      if (turn === null) throw error;
      if (!this.stop.signal.aborted) this.lose();
    }
  }

  /** A run has the messages; false if this page follows it already. */
  begin(turn, texts, others) {
    const known = this.runs.get(turn);
    if (known?.live) {
      this.runs.set(turn, texts.reduce(joined, known));
      this.changed({});
      return false;
    }
    // Messages of others in a running run are in the timeline only.
    this.others = turn === others;
    const before = known ? opening(known) : [...this.waiting, ...texts];
    if (!this.others) this.waiting = [];
    const run = newRun(turn, before, true);
    this.runs.set(turn, this.others ? texts.reduce(joined, run) : run);
    this.forget();
    this.changed({ loaded: true });
    return true;
  }

  hear(turn, name, data) {
    const run = this.runs.get(turn);
    if (!run) return;
    this.runs.set(turn, heard(run, name, data));
    if (!data.spawn_path && ["end", "error"].includes(name)) this.ended(turn);
    this.timer ??= setTimeout(() => this.changed({}), GATHER_MS);
  }

  /** What the run has not taken in waits for the next one. */
  ended(turn) {
    const run = this.runs.get(turn);
    this.waiting = [...this.waiting, ...run.waiting];
    this.runs.set(turn, { ...run, waiting: [] });
    if (this.others && run.threads.size === 1) this.lose();
    else this.load();
  }

  /** Begins anew with the timeline: the events of a run are not all there. */
  lose() {
    Object.assign(this, { runs: new Map(), seq: 0, gone: 0, round: this.round + 1 });
    this.load();
  }

  /** Removes the messages with which a run has begun from those that wait. */
  begun(texts) {
    for (const text of texts) {
      const at = this.waiting.indexOf(text);
      if (at >= 0) this.waiting = this.waiting.toSpliced(at, 1);
    }
  }

  /** Keeps the latest runs only. */
  forget() {
    const runs = this.shown;
    const size = () => runs.reduce((sum, run) => sum + run.size, 0);
    while (runs.length > 1 && (runs.length > MOST_RUNS || size() > MOST_CHARACTERS)) {
      this.runs.delete(runs.shift().turn);
      this.gone += 1;
    }
  }

  changed(members) {
    clearTimeout(this.timer);
    this.timer = null;
    Object.assign(this, members);
    for (const listener of this.listeners) listener();
  }

  close() {
    this.stop.abort();
    clearTimeout(this.timer);
  }
}

/** The messages with which a run began. */
function opening(run) {
  const { entries } = own(run);
  const tick = entries.findIndex((entry) => entry.kind === "tick");
  return (tick < 0 ? entries : entries.slice(0, tick)).filter((entry) => entry.kind === "message").map(({ text }) => text);
}
