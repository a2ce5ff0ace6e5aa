// A session's shells that keep their state, and what a page has asked of each.

import { get, ofSession, request, send } from "../api.js";

const MOST_ENTRIES = 100;
// Characters of output in one shell's entries; older ones are left out.
const MOST_SHOWN = 1_000_000;
const PREFIX = "shell:";

/** The name of the shell that a terminal belongs to, or null: it is a tool's, or a person's shell with a screen. */
export const keptName = ({ kind, tool }) => (kind === "shell" && tool.startsWith(PREFIX) ? tool.slice(PREFIX.length) : null);

export class KeptShells {
  /** `onChange` is called after each change. */
  constructor(session, onChange) {
    Object.assign(this, { session, onChange, items: null, failed: null, entries: new Map(), asking: new Set(), number: 0 });
    this.stop = new AbortController();
  }

  /** Ends what this page waits for, so the commands that it has started are stopped. */
  close() {
    this.stop.abort();
  }

  path(...rest) {
    return ofSession(this.session, "shells", ...rest);
  }

  async load() {
    await this.doing(async () => {
      this.items = (await get(this.path(), { signal: this.stop.signal })).items;
      this.failed = null;
    });
  }

  /** The shell of that name, if it has not ended. */
  shell(name) {
    return this.items?.find((each) => each.name === name);
  }

  /** Creates a shell. Throws what is wrong with its settings. */
  async create(name, cwd) {
    const made = await send("POST", this.path(), { name, ...(cwd && { cwd }) });
    await this.load();
    return made.name;
  }

  interrupt(name) {
    return this.doing(() => send("POST", this.path(name, "interrupt"), {}));
  }

  async end(name) {
    await this.doing(() => send("DELETE", this.path(name)));
    await this.load();
  }

  /** Runs a text in the shell, or gives it to the program that runs there. */
  async ask(name, text, timeout) {
    const { running, cwd } = this.shell(name);
    const entry = { number: (this.number += 1), text, input: running, cwd };
    this.add(name, entry);
    this.asking.add(name);
    this.onChange();
    const [action, body] = running ? ["input", { text: text && `${text}\n`, timeout }] : ["run", { command: text, timeout }];
    try {
      entry.answer = await (await request("POST", this.path(name, action), { json: body, signal: this.stop.signal })).json();
    } catch (error) { entry.failed = error; }
    this.asking.delete(name);
    this.trim(name);
    await this.load();
  }

  add(name, entry) {
    this.entries.set(name, [...(this.entries.get(name) ?? []), entry]);
    this.trim(name);
  }

  trim(name) {
    const all = this.entries.get(name);
    let size = 0;
    const from = all.findLastIndex((entry, at) => (size += entry.answer?.output.length ?? 0) > MOST_SHOWN && at < all.length - 1);
    this.entries.set(name, all.slice(Math.max(from + 1, all.length - MOST_ENTRIES)));
  }

  async doing(work) {
    try { await work(); } catch (error) { if (!this.stop.signal.aborted) this.failed = error; }
    if (!this.stop.signal.aborted) this.onChange();
  }
}
