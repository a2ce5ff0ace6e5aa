/** Templates: prepared workspaces, from which sessions are created. */

import { type Api, within } from "./api.js";
import type { Template } from "./generated/contract.js";
import type { CallOptions } from "./http.js";

/** The preparation of a template may take half an hour, unless the operator allows more. */
export const PREPARATION = 1900;

/** The operator's templates. A session is created from one by `template`. */
export class Templates {
  constructor(private readonly api: Api) {}

  /** The templates by name, and which are built. */
  async list(options?: CallOptions): Promise<readonly Template[]> {
    return (await this.api.call("list_templates", {}, options)).items;
  }

  /** One template; `failure` has the output of a command that failed. */
  async get(name: string, options?: CallOptions): Promise<Template> {
    return await this.api.call("show_template", { path: { name } }, options);
  }

  /** Builds the template unless it is built, also after a failure, and waits for that. */
  async build(name: string, options?: CallOptions): Promise<Template> {
    const given = { path: { name }, body: {} };
    return await this.api.call("build_template", given, within(PREPARATION, options));
  }
}
