/** The long-term memory: a key's entries, and what its sessions search and write. */

import type { Api, Body, Query } from "./api.js";
import type { MemoryBootstrap, MemoryEntry } from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { Pages } from "./pages.js";
import { OfSession } from "./resource.js";

/** What a session finds and remembers. */
export class SessionMemory extends OfSession {
  /** Entries with one of the words, the best first; without words, the newest. Not at low. */
  async search(
    query = "",
    terms: Omit<Query<"search_memory">, "query"> = {},
    options?: CallOptions,
  ): Promise<readonly MemoryEntry[]> {
    const words = query === "" ? {} : { query };
    const given = { path: this.path, query: { ...terms, ...words } };
    return (await this.api.call("search_memory", given, options)).items;
  }

  /** Adds a note of at most 8 KiB. Only at high. */
  async write(
    text: string,
    terms: Omit<Body<"write_memory">, "text"> = {},
    options?: CallOptions,
  ): Promise<MemoryEntry> {
    const given = { path: this.path, body: { ...terms, text } };
    return await this.api.call("write_memory", given, options);
  }

  /** What the session begins with. Not at low. */
  async bootstrap(
    query: Query<"show_bootstrap"> = {},
    options?: CallOptions,
  ): Promise<MemoryBootstrap> {
    return await this.api.call("show_bootstrap", { path: this.path, query }, options);
  }
}

/** The entries of a key, for its host. */
export class KeyMemory {
  constructor(private readonly api: Api) {}

  /** The entries, newest first. */
  list(filters: Query<"list_memory"> = {}, options?: CallOptions): Pages<MemoryEntry> {
    return new Pages(async (next) => {
      const query = { ...filters, cursor: next ?? filters.cursor };
      return await this.api.call("list_memory", { query }, options);
    });
  }

  /** Adds an entry; `key` is for an admin, and by default the caller's own. */
  async add(
    text: string,
    {
      key,
      ...terms
    }: Omit<Body<"add_memory">, "text"> & { readonly key?: string | undefined } = {},
    options?: CallOptions,
  ): Promise<MemoryEntry> {
    const given = { query: { key }, body: { ...terms, text } };
    return await this.api.call("add_memory", given, options);
  }

  /** Replaces all that an entry contains. */
  async change(
    id: string,
    text: string,
    terms: Omit<Body<"change_memory">, "text"> = {},
    options?: CallOptions,
  ): Promise<MemoryEntry> {
    const given = { path: { entry_id: id }, body: { ...terms, text } };
    return await this.api.call("change_memory", given, options);
  }

  /** Forgets an entry. */
  async remove(id: string, options?: CallOptions): Promise<MemoryEntry> {
    return await this.api.call("remove_memory", { path: { entry_id: id } }, options);
  }
}
