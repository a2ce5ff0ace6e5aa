/** A session's audit chain, which outlives the session. */

import type { Api, Query } from "./api.js";
import type { AuditEvent, AuditStats, AuditVerdict } from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { Pages } from "./pages.js";
import { OfSession } from "./resource.js";

// A long chain takes a while to recompute.
const VERIFY_SECONDS = 300;
const PAGE = 500;

/** The record of a session. */
export class Audit extends OfSession {
  /** If several sessions had the id, `incarnation` selects one, from 1. */
  constructor(
    api: Api,
    session: string,
    private readonly query: { readonly incarnation?: number } = {},
  ) {
    super(api, session);
  }

  /** The events after the `seq` that is `after`, oldest first. */
  events(filters: Query<"search_audit"> = {}, options?: CallOptions): Pages<AuditEvent> {
    return new Pages(async (cursor) => {
      const after = cursor === undefined ? filters.after : Number(cursor);
      const query = { ...this.query, limit: PAGE, ...filters, after };
      return await this.api.call("search_audit", { path: this.path, query }, options);
    });
  }

  /** Numbers of events by operation and by decision. */
  async stats(options?: CallOptions): Promise<AuditStats> {
    return await this.api.call("count_audit", { path: this.path, query: this.query }, options);
  }

  /** The chain: one event's JSON text per line, exactly as hashed, without its line break. */
  async *export(options?: CallOptions): AsyncGenerator<string, void> {
    const given = { path: this.path, query: this.query };
    const media = "application/jsonl";
    const { pieces } = await this.api.download("export_audit", given, options, media);
    const decoder = new TextDecoder();
    let rest = "";
    for await (const piece of pieces) {
      const lines = (rest + decoder.decode(piece, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      yield* lines;
    }
  }

  /**
   * Makes the control plane recompute the chain.
   *
   * With `seq` and `hash` (kept from a result's `audit`), the chain must also contain that event,
   * which reveals that the end was cut off.
   */
  async verify(
    kept: { readonly seq?: number; readonly hash?: string } = {},
    { timeout = VERIFY_SECONDS, ...options }: CallOptions = {},
  ): Promise<AuditVerdict> {
    const given = { path: this.path, query: { ...this.query, ...kept } };
    return await this.api.call("verify_audit", given, { ...options, timeout });
  }
}
