/** A WebSocket on which one message after another is sent, and their runs are followed. */

import { type Api, eventError } from "./api.js";
import { objectOf } from "./answers.js";
import { Disposable } from "./disposal.js";
import { NotPaddockError } from "./errors.js";
import type { Problem, RunFrame } from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import type { RunEvent, RunTerms } from "./runs.js";
import type { Socket } from "./socket.js";

const LAST = ["end", "error", "refused"];

/** An open WebSocket for runs; `close` leaves it, and a run that goes on continues. */
export class RunSocket extends Disposable {
  #following = false;

  constructor(
    private readonly socket: Socket,
    private readonly session: string,
  ) {
    super();
  }

  /**
   * Sends a message; yields what happens, and the run at its `end`, like `sendStream`.
   *
   * One run goes on at a time. Events that are left of an earlier run are skipped.
   */
  async *run(
    text: string,
    terms: RunTerms & Pick<RunFrame, "permission_level"> = {},
  ): AsyncGenerator<RunEvent, void> {
    while (this.#following) await this.#next();
    const frame = { ...terms, type: "run", session_id: this.session, input: text };
    this.socket.send(JSON.stringify(frame));
    do {
      const told = await this.#next();
      if (told.event === "error" || told.event === "refused") throw eventError(told.data as Problem);
      yield told as RunEvent;
    } while (this.#following);
  }

  /** Leaves it. */
  close(): void {
    this.socket.close();
  }

  protected override leave(): Promise<void> {
    this.close();
    return Promise.resolve();
  }

  async #next(): Promise<{ event: string; data: unknown }> {
    const told = await this.socket.receive();
    const frame = typeof told === "string" ? objectOf(told) : undefined;
    if (!frame || !("event" in frame) || !("data" in frame)) {
      throw new NotPaddockError("the WebSocket is not one of Paddock's for runs");
    }
    const { event, data } = frame as { event: string; data: unknown };
    this.#following = !LAST.includes(event);
    return { event, data };
  }
}

/** The client's end of a new WebSocket. */
export async function openRunSocket(
  api: Api,
  session: string,
  options?: CallOptions,
): Promise<RunSocket> {
  const given = { path: { session_id: session } };
  const socket = await api.socket("open_run_socket", session, given, "paddock.run", options);
  return new RunSocket(socket, session);
}
