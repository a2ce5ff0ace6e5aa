// The cells that a page has sent, with what came of each as it comes.

import { Problem, get, ofSession, send, streamed } from "../api.js";

const MOST_CELLS = 50;
// Of the text that one cell prints.
const MOST_SHOWN = 200_000;
const GATHER_MS = 100;

export class Cells {
  /** `onChange` is called after changes, at most some times a second. */
  constructor(session, onChange) {
    Object.assign(this, { session, onChange, items: [], contexts: [], failed: null, sent: 0, timer: null });
    this.stop = new AbortController();
  }

  close() {
    this.stop.abort();
    clearTimeout(this.timer);
  }

  changed() {
    this.timer ??= setTimeout(() => { this.timer = null; this.onChange(); }, GATHER_MS);
  }

  path(...rest) {
    return ofSession(this.session, "code", ...rest);
  }

  context(language) {
    return this.contexts.find(({ name }) => name === language);
  }

  async load() {
    await this.doing(async () => { this.contexts = (await get(this.path("contexts"), { signal: this.stop.signal })).items; });
  }

  /** `interrupt` or `restart` of a context. */
  async act(name, action) {
    this.failed = null;
    await this.doing(() => send("POST", this.path("contexts", name, action), {}));
    await this.load();
  }

  async doing(work) {
    try { await work(); } catch (error) { if (!this.stop.signal.aborted) this.failed = error; }
    this.changed();
  }

  /** Runs a cell in the language's own context. */
  async run(code, language) {
    this.sent += 1;
    const cell = { number: this.sent, code, language, parts: [], length: 0, state: "waiting", exit: null, failed: null };
    this.items = [...this.items, cell].slice(-MOST_CELLS);
    this.changed();
    try {
      for await (const { name, data } of streamed(this.path(), this.stop.signal, undefined, { code, language })) {
        if (data) this.heard(cell, name, data);
      }
      if (!cell.exit) cell.failed = new Error("The connection ended before the cell, so it was interrupted.");
    } catch (error) {
      cell.failed = error;
    }
    if (cell.failed) cell.state = cell.failed instanceof Problem ? "refused" : "interrupted";
    await this.load();
  }

  heard(cell, name, data) {
    if (name === "start") { cell.state = "running"; this.load(); }
    if (name === "stdout" || name === "stderr") print(cell, name, data.text);
    if (name === "result") cell.parts.push({ kind: "value", value: data });
    if (name === "exception") cell.parts.push({ kind: "error", error: data });
    if (name === "exit") Object.assign(cell, { exit: data, state: data.status });
    this.changed();
  }
}

/** Adds text to what the cell has printed, of which only the beginning is kept. */
function print(cell, stream, text) {
  const kept = text.slice(0, Math.max(0, MOST_SHOWN - cell.length));
  cell.length += text.length;
  const last = cell.parts.at(-1);
  if (last?.kind === stream) last.text += kept;
  else if (kept) cell.parts.push({ kind: stream, text: kept });
}

/** How much text was printed and is not shown. */
export const unshown = (cell) => Math.max(0, cell.length - MOST_SHOWN);
