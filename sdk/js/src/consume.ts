/** The context pack of a session that is limited to one. */

import { collected } from "./bytes.js";
import type { PackState } from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { OfSession } from "./resource.js";

/** What a session may read. */
export class Consume extends OfSession {
  /** The pack, and the reads that were denied; also long after the session's end. */
  async get(options?: CallOptions): Promise<PackState> {
    return await this.api.call("show_pack", { path: this.path }, options);
  }

  /**
   * A file of the pack, at most 16 MiB; `hash` is the one that it must have.
   *
   * Anything else is refused; by default the session has then ended, with the rationale
   * `CONTEXT_MISS`.
   */
  async read(
    path: string,
    terms: { readonly hash?: string | undefined } = {},
    options?: CallOptions,
  ): Promise<Uint8Array> {
    const given = { path: this.path, body: { ...terms, path } };
    const { pieces } = await this.api.download("read_packed_file", given, options);
    return await collected(pieces, Infinity, path);
  }
}
