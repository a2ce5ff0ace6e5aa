/** Volumes: files of a key that its sessions mount by name. */

import type { Api, Body, Query } from "./api.js";
import type { Volume } from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { Pages } from "./pages.js";

/** The volumes of a key. A session has those of its `volumes`. */
export class Volumes {
  constructor(private readonly api: Api) {}

  /** An empty volume that can hold `size_bytes`, its file system included. */
  async create(volume: Body<"create_volume">, options?: CallOptions): Promise<Volume> {
    return await this.api.call("create_volume", { body: volume }, options);
  }

  /** The volumes; `key` is for an admin. */
  list(filters: Query<"list_volumes"> = {}, options?: CallOptions): Pages<Volume> {
    return new Pages(async (next) => {
      const query = { ...filters, cursor: next ?? filters.cursor };
      return await this.api.call("list_volumes", { query }, options);
    });
  }

  /** One volume: how much it holds, and which sessions have it. */
  async get(
    name: string,
    query: Query<"show_volume"> = {},
    options?: CallOptions,
  ): Promise<Volume> {
    return await this.api.call("show_volume", { path: { name }, query }, options);
  }

  /** Removes a volume with all of its files, and returns it as it was. */
  async remove(
    name: string,
    query: Query<"remove_volume"> = {},
    options?: CallOptions,
  ): Promise<Volume> {
    return await this.api.call("remove_volume", { path: { name }, query }, options);
  }
}
