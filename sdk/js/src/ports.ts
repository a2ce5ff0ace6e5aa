/** The ports of a session's sandbox that clients may reach. */

import type { OpenedPort, Port } from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { OfSession } from "./resource.js";

/** Open ports of a session. A session's handle can only list them. */
export class Ports extends OfSession {
  /** Opens a port for some seconds; `link` in the answer reaches it without a key. */
  async open(
    port: number,
    terms: { seconds?: number } = {},
    options?: CallOptions,
  ): Promise<OpenedPort> {
    return await this.api.call("open_port", { path: this.path, body: { port, ...terms } }, options);
  }

  /** The open ports. */
  async list(options?: CallOptions): Promise<readonly Port[]> {
    return (await this.api.call("list_ports", { path: this.path }, options)).items;
  }

  /** Ends a port's connections at once. */
  async close(port: number, options?: CallOptions): Promise<Port> {
    return await this.api.call("close_port", { path: { ...this.path, port } }, options);
  }
}
