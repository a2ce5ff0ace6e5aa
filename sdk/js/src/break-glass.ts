/** Break-glass access of an admin to another key's session. */

import type { GlassAccess } from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { OfSession } from "./resource.js";

/** The caller's access to a session's content, where admins need one. */
export class BreakGlass extends OfSession {
  /** Opens it for an hour, or for that time; the session's owner is told the reason. */
  async open(
    reason: string,
    terms: { readonly seconds?: number | undefined } = {},
    options?: CallOptions,
  ): Promise<GlassAccess> {
    const given = { path: this.path, body: { ...terms, reason } };
    return await this.api.call("open_break_glass", given, options);
  }

  /** Ends it, with the streams and terminals that it has opened. */
  async close(options?: CallOptions): Promise<GlassAccess> {
    return await this.api.call("close_break_glass", { path: this.path }, options);
  }
}
