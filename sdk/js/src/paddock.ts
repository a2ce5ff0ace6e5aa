/** The client of a control plane. */

import {
  Api,
  type Answer,
  type Body,
  type EventOf,
  type Given,
  type Name,
  type Query,
  within,
} from "./api.js";
import { Approvals } from "./approvals.js";
import { Archives } from "./archives.js";
import type { Content } from "./bytes.js";
import { ArgumentError } from "./errors.js";
import type {
  AuditEvent,
  DenialGroup,
  Explanation,
  Image,
  IndexProgress,
  LanguageModel,
  Level,
  ListedPolicy,
  NodeNotice,
  Readiness,
  Tool,
  Usages,
} from "./generated/contract.js";
import { Hooks } from "./hooks.js";
import type { CallOptions } from "./http.js";
import { Keys } from "./keys.js";
import { KeyMemory } from "./memory.js";
import { Nodes } from "./nodes.js";
import { Owners } from "./owners.js";
import { Pages } from "./pages.js";
import { resumed } from "./resumed.js";
import { Secrets } from "./secrets.js";
import { type Session, sessionOf } from "./session.js";
import { Sessions } from "./sessions.js";
import { NamedSnapshots } from "./named-snapshots.js";
import { Templates } from "./templates.js";
import { Users } from "./users.js";
import { Volumes } from "./volumes.js";

// The host unpacks all of a snapshot after its last byte.
const RESTORE_SECONDS = 5400;

/** The options of a client; times are in seconds. */
export interface ClientOptions {
  /** The control plane's URL, without `/api`; by default the variable `PADDOCK_URL`. */
  readonly url?: string | undefined;
  /** An API key, or a session's handle; by default the variable `PADDOCK_KEY`. */
  readonly key?: string | undefined;
  /** For an answer: 30. Commands, transfers and the engine's work have limits of their own. */
  readonly timeout?: number | undefined;
  /** How often a GET is retried after a missing answer or a temporary error: 2. */
  readonly getRetries?: number | undefined;
  /** How long a new session may wait for capacity: 0. */
  readonly capacityWait?: number | undefined;
  /** How long a stream tries to reconnect: 60. */
  readonly reconnect?: number | undefined;
  /** Sends the requests instead of the runtime's own. */
  readonly fetch?: typeof fetch | undefined;
  /** Is used instead of the runtime's own. */
  readonly WebSocket?: typeof WebSocket | undefined;
}

/** How the events of all sessions are followed. */
export interface EventsOptions {
  readonly after?: number | string | undefined;
  readonly onNode?: ((node: string, there: boolean) => void) | undefined;
}

/**
 * A control plane.
 *
 * Nothing is sent before the first call, and nothing needs to be closed. Every method takes a
 * `signal` and a `timeout` in its last argument, and throws a `PaddockError`: `PaddockAPIError` in
 * the class of its code for a refusal. Throws `ArgumentError` for a URL or key that is no such.
 */
export class Paddock {
  readonly sessions: Sessions;
  readonly approvals: Approvals;
  readonly archives: Archives;
  readonly secrets: Secrets;
  readonly memory: KeyMemory;
  readonly hooks: Hooks;
  readonly nodes: Nodes;
  readonly owners: Owners;
  readonly keys: Keys;
  readonly users: Users;
  readonly volumes: Volumes;
  readonly snapshots: NamedSnapshots;
  readonly templates: Templates;
  /** The control plane's URL. */
  readonly url: string;
  readonly #api: Api;

  constructor(options: ClientOptions = {}) {
    this.url = baseUrl(options.url ?? variable("PADDOCK_URL"));
    this.#api = new Api(
      {
        url: this.url,
        timeout: options.timeout ?? 30,
        retry: { gets: options.getRetries ?? 2, capacity: options.capacityWait ?? 0 },
        reconnect: options.reconnect ?? 60,
        fetch: options.fetch ?? ((...given) => fetch(...given)),
        WebSocket: options.WebSocket,
      },
      options.key ?? variable("PADDOCK_KEY"),
    );
    this.sessions = new Sessions(this.#api);
    this.approvals = new Approvals(this.#api);
    this.archives = new Archives(this.#api);
    this.secrets = new Secrets(this.#api);
    this.memory = new KeyMemory(this.#api);
    this.hooks = new Hooks(this.#api);
    this.nodes = new Nodes(this.#api);
    this.owners = new Owners(this.#api);
    this.keys = new Keys(this.#api);
    this.users = new Users(this.#api);
    this.volumes = new Volumes(this.#api);
    this.snapshots = new NamedSnapshots(this.#api);
    this.templates = new Templates(this.#api);
  }

  /** Calls any operation of the API by its name in the OpenAPI document; its JSON answer. */
  async call<N extends Name>(name: N, ...given: Given<N>): Promise<Answer<N>> {
    return await this.#api.call(name, ...given);
  }

  /** The events of any operation that streams some, over one connection. */
  stream<N extends Name>(name: N, ...[given, options]: Given<N>): AsyncGenerator<EventOf<N>, void> {
    return this.#api.events(name, given ?? ({} as NonNullable<typeof given>), options);
  }

  /** Whether sessions can be created, and the checks behind that. */
  async ready(options: CallOptions = {}): Promise<Readiness> {
    return await this.#api.callEven(503, "readyz", options);
  }

  /**
   * Audit events of all sessions of this key (for an admin, of all sessions), without end.
   *
   * `after` is the `id` of the last event received; without it, new events only. Survives broken
   * connections. If a node of a cluster goes away or is back, `onNode` receives its name, and
   * whether it is there.
   */
  async *events(
    { after, onNode }: EventsOptions = {},
    options: CallOptions = {},
  ): AsyncGenerator<AuditEvent, void> {
    const never = () => Promise.resolve(false);
    for await (const event of resumed(this.#api, "follow_all", {}, after, never, options)) {
      if (event.event === "node.missing" || event.event === "node.back") {
        onNode?.((event.data as NodeNotice).node, event.event === "node.back");
      } else yield event.data as AuditEvent;
    }
  }

  /** Recorded events of all sessions of this key (for an admin, of all), newest first. */
  search(filters: Query<"search_all_audit"> = {}, options?: CallOptions): Pages<AuditEvent> {
    return new Pages(async (next) => {
      const query = { ...filters, cursor: next ?? filters.cursor } as typeof filters;
      return await this.#api.call("search_all_audit", { query }, options);
    });
  }

  /**
   * Begins to make the index of `search` again; for admins' keys.
   *
   * With `after`, the `position` of an earlier answer, it waits some seconds for progress.
   */
  async reindex(
    terms: Body<"reindex_audit"> = {},
    options?: CallOptions,
  ): Promise<IndexProgress> {
    return await this.#api.call("reindex_audit", { body: terms }, options);
  }

  /** What was denied most in this key's sessions (for an admin, in all), of the latest 1,000. */
  async denials(
    { since }: { readonly since?: Date | undefined } = {},
    options?: CallOptions,
  ): Promise<readonly DenialGroup[]> {
    const query = { from: since?.toISOString() };
    return (await this.#api.call("count_denials", { query }, options)).items;
  }

  /**
   * What this key's live sessions used in the last ten minutes; for an admin, the host too.
   *
   * `after` is the `round` of an earlier answer: only later samples are returned.
   */
  async usage(query: Query<"show_usage"> = {}, options?: CallOptions): Promise<Usages> {
    return await this.#api.call("show_usage", { query }, options);
  }

  /** The permission levels, lowest first. */
  async levels(options?: CallOptions): Promise<readonly Level[]> {
    return (await this.#api.call("list_policies", {}, options)).items;
  }

  /** What turns of sessions may do: the policies, the built-in ones first. */
  async sessionPolicies(options?: CallOptions): Promise<readonly ListedPolicy[]> {
    return (await this.#api.call("list_policies", {}, options)).session_policies ?? [];
  }

  /** Explains how rules decide a command, a path or an operation; nothing is run. */
  async explain(what: Body<"explain_policy">, options?: CallOptions): Promise<Explanation> {
    return await this.#api.call("explain_policy", { body: what }, options);
  }

  /**
   * Creates the session of a snapshot, with its id. If it fails, nothing is created.
   *
   * With another `id`, it is a new session whose time and budget begin anew.
   */
  async restore(
    snapshot: Content,
    options: CallOptions & Query<"restore_session"> = {},
  ): Promise<Session> {
    const { id, ...others } = options;
    const patient = within(RESTORE_SECONDS, others);
    const given = { query: { id } };
    return sessionOf(this.#api, await this.#api.upload("restore_session", given, snapshot, patient));
  }

  /** The operator's images, the default one first, and whether each is usable. */
  async images(options?: CallOptions): Promise<readonly Image[]> {
    return (await this.#api.call("list_images", {}, options)).items;
  }

  /** The operator's models with their prices, the default one first. */
  async models(options?: CallOptions): Promise<readonly LanguageModel[]> {
    return (await this.#api.call("list_models", {}, options)).items;
  }

  /** All commands of all tools, and for a `level` whether it could allow each. */
  async tools(query: Query<"list_all_tools"> = {}, options?: CallOptions): Promise<readonly Tool[]> {
    return (await this.#api.call("list_all_tools", { query }, options)).items;
  }
}

/** A variable of the process's environment, where there is one. */
function variable(name: "PADDOCK_URL" | "PADDOCK_KEY"): string {
  const scope = globalThis as { process?: { env?: Record<string, string | undefined> } };
  const value = scope.process?.env?.[name];
  if (value) return value;
  const option = name === "PADDOCK_URL" ? "url" : "key";
  throw new ArgumentError(`give the option ${option}, or set ${name}`);
}

function baseUrl(text: string): string {
  let url: URL | undefined;
  try {
    url = new URL(text);
  } catch {
    // Refused below.
  }
  const isProper = url && /^https?:$/.test(url.protocol) && !url.username && !url.password;
  if (!url || !isProper || url.search || url.hash) {
    throw new ArgumentError("the URL must be http://host:port or https://host:port");
  }
  return url.href.replace(/\/+$/, "");
}
