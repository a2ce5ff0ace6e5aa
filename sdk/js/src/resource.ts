/** The base of what belongs to a session. */

import type { Api } from "./api.js";

/** A part of a session. */
export abstract class OfSession {
  /** The session's part of paths. */
  protected readonly path: { readonly session_id: string };

  constructor(
    protected readonly api: Api,
    session: string,
  ) {
    this.path = { session_id: session };
  }
}
