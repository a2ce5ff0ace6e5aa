/** Turns of a session: programs of governed operations, and earlier turns. */

import type { Body, EventOf } from "./api.js";
import { ConnectionLostError } from "./errors.js";
import type { Turn, Turns as TurnsPage } from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { Pages } from "./pages.js";
import { OfSession } from "./resource.js";

/** Runs turns, one at a time. */
export class Turns extends OfSession {
  /** Runs a turn and waits for its end; what fails in it is its outcome, not an error. */
  async run(turn: Body<"run_turn">, options?: CallOptions): Promise<Turn> {
    for await (const event of this.stream(turn, options)) {
      if (event.event === "end") return event.data;
    }
    throw new ConnectionLostError("the stream of the turn has no end");
  }

  /** Runs a turn, and yields its start, each operation, and its end. */
  stream(
    turn: Body<"run_turn">,
    options?: CallOptions,
  ): AsyncGenerator<EventOf<"run_turn">, void> {
    const given = { path: this.path, body: turn };
    return this.api.eventsTo("end", "run_turn", given, options);
  }

  /** An earlier turn. */
  async get(number: number, options?: CallOptions): Promise<Turn> {
    return await this.api.call("read_turn", { path: { ...this.path, number } }, options);
  }

  /** Earlier turns, oldest first. */
  list(options?: CallOptions): Pages<TurnsPage["items"][number]> {
    return new Pages(async (after) => {
      const query = after === undefined ? {} : { after: Number(after) };
      return await this.api.call("list_turns", { path: this.path, query }, options);
    });
  }
}
