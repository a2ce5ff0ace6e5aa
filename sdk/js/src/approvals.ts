/** Approvals: requests that wait for a person's decision. */

import type { Api, Query } from "./api.js";
import { pause } from "./deadline.js";
import { ConnectionLostError } from "./errors.js";
import type { Approval } from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { Pages } from "./pages.js";
import { Patience, isPassing } from "./retry.js";

/** The approvals of this key's sessions (for an admin, of all sessions). */
export class Approvals {
  constructor(private readonly api: Api) {}

  /** The approvals, newest first. */
  list(filters: Query<"list_approvals"> = {}, options?: CallOptions): Pages<Approval> {
    return new Pages(async (next) => {
      const cursor = next ?? filters.cursor;
      return await this.api.call("list_approvals", { query: { ...filters, cursor } }, options);
    });
  }

  /** Approves the command, once. */
  async approve(id: string, reason?: string, options?: CallOptions): Promise<Approval> {
    return await this.#decide(id, "approve", reason, options);
  }

  /** Denies the command. */
  async deny(id: string, reason?: string, options?: CallOptions): Promise<Approval> {
    return await this.#decide(id, "deny", reason, options);
  }

  /**
   * Pending approvals, present and future, each once and oldest first, without end.
   *
   * Survives broken connections.
   */
  async *watch(options: CallOptions = {}): AsyncGenerator<Approval, void> {
    const seen = new Set<string>();
    const patience = new Patience(this.api.settings.reconnect);
    for (;;) {
      let delay: number;
      try {
        // The open stream reports what the list does not contain yet.
        const { events, end } = await this.api.begunEvents("follow_all", {}, options);
        try {
          yield* await this.#unseen(seen, options);
          for await (const { event } of events) {
            patience.renew();
            if (event === "approval.request") yield* await this.#unseen(seen, options);
          }
        } finally {
          end();
        }
        delay = patience.delay(new ConnectionLostError("the stream of events ends too soon"));
      } catch (error) {
        if (!isPassing(error)) throw error;
        delay = patience.delay(error);
      }
      await pause(delay, options.signal);
    }
  }

  async #unseen(seen: Set<string>, options: CallOptions): Promise<readonly Approval[]> {
    const waiting = await this.list({ status: "pending" }, options);
    const found = waiting.reverse().filter(({ id }) => !seen.has(id));
    for (const { id } of found) seen.add(id);
    return found;
  }

  async #decide(id: string, decision: "approve" | "deny", reason?: string, options?: CallOptions) {
    const given = { path: { approval_id: id }, body: { decision, reason } };
    return await this.api.call("decide_approval", given, options);
  }
}
