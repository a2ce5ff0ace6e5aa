/** Archived audit chains, for an admin. */

import { type Api, type Body, within } from "./api.js";
import type { Archive, ArchiveRun } from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { Pages } from "./pages.js";

// Long chains take time: they are read, compressed and read back.
const SECONDS = 600;

/** Archived chains of ended sessions, in files of the control plane. */
export class Archives {
  constructor(private readonly api: Api) {}

  /**
   * Archives chains of sessions that ended at least `older_than` seconds ago, oldest first.
   *
   * If there are many, `more` is true: call again.
   */
  async make(terms: Body<"archive_audit"> = {}, options: CallOptions = {}): Promise<ArchiveRun> {
    return await this.api.call("archive_audit", { body: terms }, within(SECONDS, options));
  }

  /** All archived chains. */
  list(options?: CallOptions): Pages<Archive> {
    return new Pages(async (after) => {
      return await this.api.call("list_archives", { query: { after } }, options);
    });
  }
}
