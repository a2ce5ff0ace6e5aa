/** Named snapshots: copies of workspaces that a key keeps, and from which sessions begin. */

import { type Api, type Query, within } from "./api.js";
import type { NamedSnapshot } from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { Pages } from "./pages.js";

/** Where blocks can't be shared, they are copied: the longest time for that, in seconds. */
export const COPY = 1300;

/** The named snapshots of a key. A session begins as one by `from_snapshot`. */
export class NamedSnapshots {
  constructor(private readonly api: Api) {}

  /**
   * Keeps a copy of the session's workspace under that name. The session may be in use.
   * `metadata`: your own texts by name, 16 KiB in all; on record. `layer`: with what root inside
   * has written over the image.
   */
  async create(
    session: string,
    name: string,
    { metadata, layer, ...options }: CallOptions & {
      readonly metadata?: Readonly<Record<string, string>>;
      readonly layer?: boolean;
    } = {},
  ): Promise<NamedSnapshot> {
    const body = { name, ...(metadata && { metadata }), ...(layer && { layer }) };
    const given = { path: { session_id: session }, body };
    return await this.api.call("create_snapshot", given, within(COPY, options));
  }

  /** The snapshots; `key` is for an admin. */
  list(filters: Query<"list_snapshots"> = {}, options?: CallOptions): Pages<NamedSnapshot> {
    return new Pages(async (next) => {
      const query = { ...filters, cursor: next ?? filters.cursor };
      return await this.api.call("list_snapshots", { query }, options);
    });
  }

  /** The snapshot with that name or id; while it is taken, how far that is. */
  async get(
    name: string,
    query: Query<"show_snapshot"> = {},
    options?: CallOptions,
  ): Promise<NamedSnapshot> {
    return await this.api.call("show_snapshot", { path: { name }, query }, options);
  }

  /** Sets texts of a snapshot by their names, or removes those that are null; others stay. */
  async change(
    name: string,
    metadata: Readonly<Record<string, string | null>>,
    query: Query<"change_snapshot"> = {},
    options?: CallOptions,
  ): Promise<NamedSnapshot> {
    const given = { path: { name }, query, body: { metadata } };
    return await this.api.call("change_snapshot", given, options);
  }

  /** Removes a snapshot, and returns it as it was. Sessions that began as it keep their files. */
  async remove(
    name: string,
    query: Query<"remove_snapshot"> = {},
    options?: CallOptions,
  ): Promise<NamedSnapshot> {
    return await this.api.call("remove_snapshot", { path: { name }, query }, options);
  }
}
