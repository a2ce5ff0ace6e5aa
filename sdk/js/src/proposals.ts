/** What a session in proposal mode staged, until its host commits or discards it. */

import type { Committed, Proposal, RolledBack } from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { Pages } from "./pages.js";
import { OfSession } from "./resource.js";

/** The changes that a session staged. */
export class Proposals extends OfSession {
  /** The changes, in order of paths. */
  list(options?: CallOptions): Pages<Proposal> {
    return new Pages(async (after) => {
      const query = after === undefined ? {} : { after };
      return await this.api.call("list_proposals", { path: this.path, query }, options);
    });
  }

  /**
   * Applies the changes to the workspace, all or none. Nothing may run in the session.
   *
   * `paths`: only these, and what is below them. `expected`: only these, and only as they were
   * listed.
   */
  async commit(
    terms: { paths?: readonly string[]; expected?: readonly Proposal[] } = {},
    options?: CallOptions,
  ): Promise<Committed> {
    const { paths, expected } = terms;
    const wanted = expected?.map(({ ref, fingerprint, mode }) => [ref, { fingerprint, mode }]);
    const body = {
      ...(paths && { paths }),
      ...(wanted && { expected: Object.fromEntries(wanted) }),
    };
    return await this.api.call("commit_proposals", { path: this.path, body }, options);
  }

  /** Discards all changes. */
  async rollback(options?: CallOptions): Promise<RolledBack> {
    return await this.api.call("rollback_proposals", { path: this.path, body: {} }, options);
  }
}
