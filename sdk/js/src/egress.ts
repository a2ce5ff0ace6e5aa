/** The rules of a session's way out. */

import type { Body } from "./api.js";
import type { EgressDrafts, SessionEgress } from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { OfSession } from "./resource.js";

/** What a session may reach. */
export class Egress extends OfSession {
  /** The rules in force, and what was used. */
  async get(options?: CallOptions): Promise<SessionEgress> {
    return await this.api.call("show_egress", { path: this.path }, options);
  }

  /** Sets the session's own rules, from the next request on; null removes them. */
  async set(rules: Body<"change_egress">, options?: CallOptions): Promise<SessionEgress> {
    return await this.api.call("change_egress", { path: this.path, body: rules }, options);
  }

  /** Adds these rules, and those that drafts propose. */
  async add(rules: Body<"add_egress_rules">, options?: CallOptions): Promise<SessionEgress> {
    return await this.api.call("add_egress_rules", { path: this.path, body: rules }, options);
  }

  /** What was denied, by the rules that would allow it. */
  async drafts(options?: CallOptions): Promise<EgressDrafts> {
    return await this.api.call("list_egress_drafts", { path: this.path }, options);
  }
}
