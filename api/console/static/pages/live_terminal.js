// A terminal as its program draws it now, over a WebSocket.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { Problem, get, ofSession, send, withQuery } from "../api.js";
import { Badge, Failure } from "../parts.js";
import { Screen, notice } from "../terminal.js";

const RETRY_MS = [500, 1000, 2000, 5000];
const MOST_REFUSALS = 3;
const MOST_FRAME = 16 * 1024;
const REFUSED = "The terminal can't be opened. The session may have as many as it can, or its sandbox does not answer: its activity says more.";

/** What may be sent of a person's input at once. */
function* frames(data) {
  for (let at = 0; at < data.length; at += MOST_FRAME) yield data.subarray(at, at + MOST_FRAME);
}

const bytesOf = (text) => Uint8Array.from(text, (letter) => letter.charCodeAt(0));

/** Follows a terminal until `close` is called; after a lost connection, connects to the same terminal again. */
class Connection {
  constructor(session, { pty, watch }, screen, onChange) {
    Object.assign(this, { session, pty, watch, screen, onChange, failures: 0, refusals: 0, closed: false });
    if (!watch) this.listen();
    this.open();
  }

  listen() {
    const { terminal } = this.screen;
    const encoder = new TextEncoder();
    this.type = (data) => { if (this.socket?.readyState === WebSocket.OPEN && this.writable) for (const frame of frames(data)) this.socket.send(frame); };
    terminal.onData((text) => this.type(encoder.encode(text)));
    terminal.onBinary((text) => this.type(bytesOf(text)));
    terminal.onResize(() => this.resize());
  }

  resize() {
    const { columns: cols, rows } = this.screen.size();
    if (this.writable && this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ resize: { cols, rows } }));
  }

  path() {
    const { columns: cols, rows } = this.screen.size();
    const size = this.watch ? {} : { cols, rows };
    return withQuery(ofSession(this.session, "terminal"), { pty: this.pty, ...size, watch: this.watch ? 1 : null });
  }

  async open() {
    try {
      const { ticket } = await send("POST", "/api/tickets", { session_id: this.session });
      if (this.closed) return;
      this.began = false;
      this.socket = new WebSocket(new URL(this.path(), location.href).href.replace(/^http/, "ws"), ["paddock.terminal", `ticket.${ticket}`]);
      this.socket.binaryType = "arraybuffer";
      this.socket.onmessage = ({ data }) => this.heard(data);
      this.socket.onclose = () => this.lost();
    } catch (error) {
      if (error instanceof Problem && error.status < 500 && error.status !== 429) this.over({ state: "failed", error });
      else this.again();
    }
  }

  heard(data) {
    if (typeof data !== "string") return this.screen.write(new Uint8Array(data));
    const { terminal, resize, lost, exit } = JSON.parse(data);
    if (terminal) this.begin(terminal);
    if (resize && this.watch) this.screen.terminal.resize(resize.cols, resize.rows);
    if (lost) this.screen.write(notice(`${lost} bytes are missing here`));
    if (exit) this.over({ state: "ended", exit });
  }

  begin(terminal) {
    Object.assign(this, { began: true, failures: 0, refusals: 0, pty: terminal.id, writable: terminal.writable && !this.watch });
    this.screen.terminal.reset();
    if (this.watch) this.screen.terminal.resize(terminal.cols, terminal.rows);
    this.onChange({ state: "live", terminal, error: null });
    this.resize();
    if (this.writable) this.screen.terminal.focus();
  }

  /** Looks up why a socket was refused, because a browser does not say it. */
  async lost() {
    if (this.closed) return;
    const known = this.pty && await get(ofSession(this.session, "ptys", this.pty)).catch((error) => ({ error }));
    if (this.closed) return;
    if (known?.ended_at) this.over({ state: "ended", exit: known });
    else if (known?.error instanceof Problem && known.error.status < 500) this.over({ state: "failed", error: known.error });
    else if (!this.began && !known?.error && ++this.refusals >= MOST_REFUSALS) this.over({ state: "failed", error: new Error(REFUSED) });
    else this.again();
  }

  over(members) {
    this.closed = true;
    this.onChange(members);
  }

  again() {
    if (this.closed) return;
    this.onChange({ state: "reconnecting" });
    this.timer = setTimeout(() => this.open(), RETRY_MS[Math.min(this.failures++, RETRY_MS.length - 1)]);
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.socket?.close();
  }
}

const STATES = { connecting: "", live: "good", reconnecting: "warn", ended: "", failed: "bad" };

/** How a program has ended, in words. */
export const ended = ({ exit_code: code, signal, reason }) =>
  [code == null ? null : `exit ${code}`, signal && `signal ${signal}`, reason].filter(Boolean).join(", ");

/** A terminal that is watched, or with `writable` used. `onOpened(id)` tells which one it is. */
export function LiveTerminal({ session, pty, writable = false, onOpened, children }) {
  const [now, setNow] = useState({ state: "connecting" });
  const opened = useRef(onOpened);
  opened.current = onOpened;
  const change = (members) => {
    setNow((before) => ({ ...before, ...members }));
    if (members.terminal) opened.current?.(members.terminal.id);
  };
  const ready = (screen) => {
    const connection = new Connection(session, { pty, watch: !writable }, screen, change);
    return () => connection.close();
  };
  return html`<section class="terminal" aria-label=${writable ? "shell" : "live terminal"}>
    <p class="actions terminal-head"><${Badge} kind=${STATES[now.state]}>${now.state}<//>
      <span class="hint" role="status">${now.exit ? ended(now.exit) : ""}</span>${children}</p>
    ${now.error && html`<${Failure} error=${now.error} />`}
    <${Screen} label=${writable ? "shell" : "terminal"} writable=${writable} fits=${writable} onReady=${ready} /></section>`;
}
