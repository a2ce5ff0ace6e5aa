/** The sessions of a key. */

import { type Api, type Body, type Query, within } from "./api.js";
import { Audit } from "./audit.js";
import { Consume } from "./consume.js";
import type { InspectedSession, Session as SessionInfo } from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { Pages } from "./pages.js";
import { Session, sessionOf } from "./session.js";
import { PREPARATION } from "./templates.js";
import { Terminals } from "./terminals.js";

/** What a new session may do and use, as the API has it. */
export type SessionTerms = Body<"create_session">;

/** The sessions of this client's key (for an admin, of all keys). */
export class Sessions {
  constructor(private readonly api: Api) {}

  /** Creates a session; its sandbox runs when this returns. */
  async create(terms: SessionTerms = {}, options?: CallOptions): Promise<Session> {
    return this.#of(await this.api.callEngine("create_session", { body: terms }, patient(terms, options)));
  }

  /** The existing session with that id, or a new one; `handle` is undefined if it existed. */
  async ensure(
    id: string,
    terms: Body<"ensure_session"> = {},
    options?: CallOptions,
  ): Promise<Session> {
    const given = { path: { session_id: id }, body: terms };
    return this.#of(await this.api.callEngine("ensure_session", given, patient(terms, options)));
  }

  /** A live or recently ended session. */
  async get(id: string, options?: CallOptions): Promise<Session> {
    return this.#of(await this.inspect(id, options));
  }

  /** The session with that id and its current activity. */
  async inspect(id: string, options?: CallOptions): Promise<InspectedSession> {
    return await this.api.call("inspect_session", { path: { session_id: id } }, options);
  }

  /** A session that uses its handle for everything instead of the client's key. */
  async attach(id: string, handle: string, options?: CallOptions): Promise<Session> {
    const api = this.api.with(handle);
    const info = await api.call("inspect_session", { path: { session_id: id } }, options);
    return new Session(api, info, handle);
  }

  /** Live and recently ended sessions, newest first; with a final `status`, all that ended so. */
  list(
    { label, metadata, ...filters }: Omit<Query<"list_sessions">, "label" | "metadata"> & {
      readonly label?: readonly [name: string, value: string];
      readonly metadata?: Readonly<Record<string, string>>;
    } = {},
    options?: CallOptions,
  ): Pages<Session> {
    const query = {
      ...filters,
      ...(label && { label: label.join(":") }),
      ...(metadata && { metadata: new URLSearchParams(metadata).toString() }),
    };
    return new Pages(async (next) => {
      const cursor = next ?? filters.cursor;
      const page = await this.api.call("list_sessions", { query: { ...query, cursor } }, options);
      return { items: page.items.map((each) => this.#of(each)), next: page.next };
    });
  }

  /** Ends the session with that id, in one request; with `purge`, also removes its workspace. */
  async close(id: string, { purge = false } = {}, options?: CallOptions): Promise<void> {
    const given = { path: { session_id: id }, query: { purge } };
    await this.api.callEngine("close_session", given, options);
  }

  /** Freezes every process of the session with that id, in one request. */
  async pause(id: string, options?: CallOptions): Promise<SessionInfo> {
    const given = { path: { session_id: id }, body: {} };
    return await this.api.callEngine("pause_session", given, options);
  }

  /** Ends the session with that id as a failure, in one request. */
  async abort(id: string, options?: CallOptions): Promise<SessionInfo> {
    const given = { path: { session_id: id }, body: {} };
    return await this.api.callEngine("abort_session", given, options);
  }

  /**
   * Creates a session with that pack, for the work of one that ended by a `CONTEXT_MISS`.
   *
   * It is otherwise like the earlier one. Values of variables are not kept, so they are given again.
   */
  async refine(id: string, terms: Body<"refine_session">, options?: CallOptions): Promise<Session> {
    const given = { path: { session_id: id }, body: terms };
    return this.#of(await this.api.callEngine("refine_session", given, options));
  }

  /** The pack of the latest session with that id that had one, also long after its end. */
  consume(id: string): Consume {
    return new Consume(this.api, id);
  }

  /** The audit chain of a session, which can be read long after its end. */
  audit(id: string, which: { readonly incarnation?: number } = {}): Audit {
    return new Audit(this.api, id, which);
  }

  /** The terminals of a session, which can be read long after its end. */
  terminals(id: string, which: { readonly incarnation?: number } = {}): Terminals {
    return new Terminals(this.api, id, which);
  }

  #of(view: object): Session {
    return sessionOf(this.api, view);
  }
}

/** A template may have to be prepared first. */
function patient(terms: { template?: string | null | undefined }, options?: CallOptions) {
  return terms.template == null ? options : within(PREPARATION, options);
}
