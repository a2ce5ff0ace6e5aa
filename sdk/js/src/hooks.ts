/** Hooks: URLs that receive a signed POST for each event of sessions. */

import type { Api, Body, Query } from "./api.js";
import type { AddedHook, Hook, HookDelivery } from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { Pages } from "./pages.js";

/** The hooks of a key, and for an admin all. */
export class Hooks {
  constructor(private readonly api: Api) {}

  /**
   * Adds a hook, which is told of its events from now on.
   *
   * Without a `secret` for the signatures, one is made. Only this answer has it.
   */
  async add(hook: Body<"add_hook">, options?: CallOptions): Promise<AddedHook> {
    return await this.api.call("add_hook", { body: hook }, options);
  }

  /** The hooks, without their secrets. */
  async list(options?: CallOptions): Promise<readonly Hook[]> {
    return (await this.api.call("list_hooks", {}, options)).items;
  }

  /** Removes a hook and its messages. */
  async remove(id: string, options?: CallOptions): Promise<Hook> {
    return await this.api.call("remove_hook", { path: { hook_id: id } }, options);
  }

  /** The messages that are not delivered. */
  deliveries(
    id: string,
    filters: Query<"list_hook_deliveries"> = {},
    options?: CallOptions,
  ): Pages<HookDelivery> {
    return new Pages(async (next) => {
      const cursor = next === undefined ? filters.cursor : Number(next);
      const given = { path: { hook_id: id }, query: { ...filters, cursor } };
      return await this.api.call("list_hook_deliveries", given, options);
    });
  }

  /** Sends an undelivered message again. */
  async retry(id: string, delivery: string, options?: CallOptions): Promise<HookDelivery> {
    const path = { hook_id: id, delivery_id: delivery };
    return await this.api.call("retry_hook_delivery", { path }, options);
  }
}
