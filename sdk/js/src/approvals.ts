/** Approvals: requests that wait for a person's decision. */

import type { Api, Query } from "./api.js";
import type { Approval } from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { Pages } from "./pages.js";

/** The approvals of this key's sessions (for an admin, of all sessions). */
export class Approvals {
  constructor(private readonly api: Api) {}

  /** The approvals, newest first. */
  list(filters: Query<"list_approvals"> = {}, options?: CallOptions): Pages<Approval> {
    return new Pages(async (next) => {
      const cursor = next === undefined ? filters.cursor : Number(next);
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

  async #decide(id: string, decision: "approve" | "deny", reason?: string, options?: CallOptions) {
    const given = { path: { approval_id: id }, body: { decision, reason } };
    return await this.api.call("decide_approval", given, options);
  }
}
