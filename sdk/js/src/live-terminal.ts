/** Live terminals: a session's shell, or a view of one of its terminals, over a WebSocket. */

import type { Api, Query } from "./api.js";
import { objectOf } from "./answers.js";
import { Disposable } from "./disposal.js";
import { NotPaddockError } from "./errors.js";
import type {
  TerminalEnd,
  TerminalExit,
  TerminalLost,
  TerminalOpened,
  TerminalResized,
  WatchedTerminal,
} from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import type { Socket } from "./socket.js";

// A frame of a client may have 64 KiB.
const MOST_TYPED_BYTES = 32 * 1024;

/** What a terminal shows: its bytes, changes of its size, losses, and finally its exit. */
export type Frame = Uint8Array | TerminalResized | TerminalLost | TerminalExit;

/** An open terminal; `close` leaves it, and a shell then stays open. */
export class LiveTerminal extends Disposable {
  /** How its program has ended, once it has. */
  exit: TerminalEnd | undefined;

  constructor(
    private readonly socket: Socket,
    /** The terminal's id, its size, and whether it can be written to. */
    readonly info: WatchedTerminal,
  ) {
    super();
  }

  /** What the terminal shows, to its exit. Throws `ConnectionLostError` if the connection ends. */
  async *output(): AsyncGenerator<Frame, void> {
    while (!this.exit) {
      const told = await this.socket.receive();
      const frame = typeof told === "string" ? frameOf(told) : told;
      if ("exit" in frame) this.exit = frame.exit;
      if (!("terminal" in frame)) yield frame;
    }
  }

  /** Types into a shell. */
  write(data: string | Uint8Array): void {
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    for (let at = 0; at < bytes.length; at += MOST_TYPED_BYTES) {
      this.socket.send(bytes.subarray(at, at + MOST_TYPED_BYTES));
    }
  }

  /** Gives a shell another size, for all who watch it. */
  resize(cols: number, rows: number): void {
    this.socket.send(JSON.stringify({ resize: { cols, rows } }));
  }

  /** Leaves the terminal. */
  close(): void {
    this.socket.close();
  }

  protected override leave(): Promise<void> {
    this.close();
    return Promise.resolve();
  }
}

/** The terminal at the other end of a new WebSocket. */
export async function openLive(
  api: Api,
  session: string,
  query: Query<"open_live_terminal">,
  options?: CallOptions,
): Promise<LiveTerminal> {
  const given = { path: { session_id: session }, query };
  const protocol = "paddock.terminal";
  const socket = await api.socket("open_live_terminal", session, given, protocol, options);
  const first = await socket.receive();
  const frame = typeof first === "string" ? frameOf(first) : first;
  if ("terminal" in frame) return new LiveTerminal(socket, frame.terminal);
  socket.close();
  throw new NotPaddockError("the WebSocket is not one of Paddock's terminals");
}

function frameOf(text: string) {
  const frame = objectOf(text);
  const isKnown = frame && ["terminal", "resize", "lost", "exit"].some((name) => name in frame);
  if (!isKnown) {
    throw new NotPaddockError("the WebSocket sent a frame that this client does not know");
  }
  return frame as TerminalOpened | TerminalResized | TerminalLost | TerminalExit;
}
