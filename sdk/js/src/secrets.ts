/** Secrets that the proxy puts into requests that have `paddock:NAME`, for their hosts only. */

import type { Api, Body } from "./api.js";
import type { Secret } from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { OfSession } from "./resource.js";

/** Those of one session, which end with it. */
export class SessionSecrets extends OfSession {
  /** Sets a secret, from the next request on; an earlier one of that name is replaced. */
  async set(
    name: string,
    secret: Body<"set_session_secret">,
    options?: CallOptions,
  ): Promise<Secret> {
    const given = { path: { ...this.path, name }, body: secret };
    return await this.api.call("set_session_secret", given, options);
  }

  /** Those that the session may use, without their values. */
  async list(options?: CallOptions): Promise<readonly Secret[]> {
    return (await this.api.call("list_session_secrets", { path: this.path }, options)).items;
  }

  /** Removes a secret: no later request has it. */
  async remove(name: string, options?: CallOptions): Promise<Secret> {
    return await this.api.call("remove_session_secret", { path: { ...this.path, name } }, options);
  }
}

/** Those of the client's key, and of the instance for an admin. */
export class Secrets {
  constructor(private readonly api: Api) {}

  /** Sets a secret. `key`, for an admin: the key whose sessions may use it. */
  async set(
    name: string,
    { key, ...secret }: Body<"set_secret"> & { readonly key?: string | undefined },
    options?: CallOptions,
  ): Promise<Secret> {
    const given = { path: { name }, query: { key }, body: secret };
    return await this.api.call("set_secret", given, options);
  }

  /** The secrets, without their values. */
  async list(options?: CallOptions): Promise<readonly Secret[]> {
    return (await this.api.call("list_secrets", {}, options)).items;
  }

  /** Removes a secret. */
  async remove(
    name: string,
    query: { readonly key?: string | undefined } = {},
    options?: CallOptions,
  ): Promise<Secret> {
    return await this.api.call("remove_secret", { path: { name }, query }, options);
  }
}
