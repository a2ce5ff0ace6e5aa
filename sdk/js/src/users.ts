/** The users who have signed in by an issuer, for an admin. */

import type { Api, Query } from "./api.js";
import type { User } from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { Pages } from "./pages.js";

/** The users of all issuers. */
export class Users {
  constructor(private readonly api: Api) {}

  /** The users by name; of a cluster, a user once for each node that knows them. */
  list(filters: Query<"list_users"> = {}, options?: CallOptions): Pages<User> {
    return new Pages(async (next) => {
      const query = { ...filters, cursor: next ?? filters.cursor };
      return await this.api.call("list_users", { query }, options);
    });
  }

  /** Refuses tokens, and handles of sessions, of a user from before now, or of `@issuer`. */
  async revoke(name: string, options?: CallOptions): Promise<void> {
    await this.api.call("revoke_user", { path: { name } }, options);
  }
}
