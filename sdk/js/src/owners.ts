/** What is kept of owners; for admins' keys. */

import type { Api } from "./api.js";
import type { ErasedOwner, KeptContent, OwnerExport } from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { Pages } from "./pages.js";

/** Content of owners: how long it is kept, exported, erased. */
export class Owners {
  constructor(private readonly api: Api) {}

  /** What is kept, where, and for how long. */
  retention(options?: CallOptions): Pages<KeptContent> {
    return new Pages(() => this.api.call("show_retention", {}, options));
  }

  /** Writes everything that is kept of an owner to a file on each server's machine. */
  async export(name: string, options?: CallOptions): Promise<OwnerExport> {
    return await this.api.call("export_owner", { path: { name }, body: {} }, options);
  }

  /** Erases the content of an owner; chains still verify. `reason` is on record. */
  async erase(name: string, reason: string, options?: CallOptions): Promise<ErasedOwner> {
    return await this.api.call("erase_owner", { path: { name }, body: { reason } }, options);
  }
}
