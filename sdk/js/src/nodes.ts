/** The nodes of a cluster; for admins' keys. */

import type { Api } from "./api.js";
import type { DrainBody, Moved, Node, NodeReport } from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { Pages } from "./pages.js";

/** The machines of a cluster. A server that is one machine has none. */
export class Nodes {
  constructor(private readonly api: Api) {}

  /** All nodes by name, silent ones included. */
  list(options?: CallOptions): Pages<Node> {
    return new Pages(() => this.api.call("list_nodes", {}, options));
  }

  /** What the machine that answers says of itself; one machine does so, too. */
  async report(options?: CallOptions): Promise<NodeReport> {
    return await this.api.call("show_node", {}, options);
  }

  /** Has the node get no new sessions; those that it has stay, or move to other nodes. */
  async drain(name: string, body: DrainBody = {}, options?: CallOptions): Promise<Node> {
    return await this.api.call("drain_node", { path: { name }, body }, options);
  }

  /** Moves an idle session to another node, where it is active when this returns. */
  async move(sessionId: string, node: string, options?: CallOptions): Promise<Moved> {
    const path = { session_id: sessionId };
    return await this.api.call("move_session", { path, body: { node } }, options);
  }

  /** Has the node get new sessions again. */
  async undrain(name: string, options?: CallOptions): Promise<Node> {
    return await this.api.call("undrain_node", { path: { name }, body: {} }, options);
  }

  /** Gives up a node that is silent: the ids of its sessions are free again. */
  async forget(name: string, options?: CallOptions): Promise<Node> {
    return await this.api.call("forget_node", { path: { name }, body: {} }, options);
  }
}
