/** The API's keys, for an admin. */

import type { Api, Body } from "./api.js";
import type { CreatedKey, Key } from "./generated/contract.js";
import type { CallOptions } from "./http.js";

/** The keys of the keys file, which has every key but the admin key. */
export class Keys {
  constructor(private readonly api: Api) {}

  /** Creates a key. Only this answer has its secret. */
  async create(key: Body<"create_key">, options?: CallOptions): Promise<CreatedKey> {
    return await this.api.call("create_key", { body: key }, options);
  }

  /** The keys, without their secrets. */
  async list(options?: CallOptions): Promise<readonly Key[]> {
    return (await this.api.call("list_keys", {}, options)).items;
  }

  /** Gives a key another secret; the old one is valid for the overlap. Only this answer has it. */
  async rotate(
    name: string,
    rotation: Body<"rotate_key"> = {},
    options?: CallOptions,
  ): Promise<CreatedKey> {
    return await this.api.call("rotate_key", { path: { name }, body: rotation }, options);
  }

  /** Revokes a key: its requests are refused from now on. */
  async revoke(name: string, options?: CallOptions): Promise<void> {
    await this.api.call("revoke_key", { path: { name } }, options);
  }
}
