/** The users who have signed in by an issuer, for an admin. */

import type { Api } from "./api.js";
import type { User } from "./generated/contract.js";
import type { CallOptions } from "./http.js";

/** The users of all issuers. */
export class Users {
  constructor(private readonly api: Api) {}

  /** The users by name. */
  async list(options?: CallOptions): Promise<readonly User[]> {
    return (await this.api.call("list_users", {}, options)).items;
  }

  /** Refuses tokens, and handles of sessions, of a user from before now, or of `@issuer`. */
  async revoke(name: string, options?: CallOptions): Promise<void> {
    await this.api.call("revoke_user", { path: { name } }, options);
  }
}
