/** One session. */

import { type Api, type Body, within } from "./api.js";
import { COPY } from "./named-snapshots.js";
import { Audit } from "./audit.js";
import { BreakGlass } from "./break-glass.js";
import { streamOf } from "./bytes.js";
import { CodeContexts } from "./code.js";
import { Consume } from "./consume.js";
import { Egress } from "./egress.js";
import { NotFoundError, UnauthorizedError } from "./errors.js";
import { Files } from "./files.js";
import type {
  AuditEvent,
  Budget,
  Explanation,
  InspectedSession,
  Session as SessionInfo,
  SessionSettings,
} from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { SessionMemory } from "./memory.js";
import { Ports } from "./ports.js";
import { Processes } from "./processes.js";
import { Proposals } from "./proposals.js";
import { resumed } from "./resumed.js";
import { SessionSecrets } from "./secrets.js";
import { SessionWork } from "./session-work.js";
import { Shells } from "./shells.js";
import { Terminals } from "./terminals.js";
import { Turns } from "./turns.js";

type Change =
  | "pause_session"
  | "resume_session"
  | "complete_session"
  | "abort_session"
  | "interrupt_session";

// The host packs everything before the first byte.
const SNAPSHOT_SECONDS = 1900;
const LIVE = ["active", "paused"];

/**
 * A session: commands, files, terminals, runs of models, audit, lifecycle.
 *
 * `await using` closes it at the end; its workspace stays, unless `close({ purge: true })` was
 * called before.
 */
export class Session extends SessionWork {
  readonly files: Files;
  readonly processes: Processes;
  readonly shells: Shells;
  readonly contexts: CodeContexts;
  readonly terminals: Terminals;
  readonly turns: Turns;
  readonly ports: Ports;
  readonly proposals: Proposals;
  readonly secrets: SessionSecrets;
  readonly egress: Egress;
  readonly memory: SessionMemory;
  readonly breakGlass: BreakGlass;
  readonly consume: Consume;
  readonly audit: Audit;
  #closed = false;

  constructor(
    api: Api,
    /** The session as of the last answer; `refresh` requests it again. */
    public info: SessionInfo,
    /** Its own credential, if this client received it; it is sent only at creation. */
    public handle?: string,
  ) {
    super(api, info.id);
    this.files = new Files(api, info.id);
    this.processes = new Processes(api, info.id);
    this.contexts = new CodeContexts(api, info.id);
    this.shells = new Shells(api, info.id);
    this.terminals = new Terminals(api, info.id);
    this.turns = new Turns(api, info.id);
    this.ports = new Ports(api, info.id);
    this.proposals = new Proposals(api, info.id);
    this.secrets = new SessionSecrets(api, info.id);
    this.egress = new Egress(api, info.id);
    this.memory = new SessionMemory(api, info.id);
    this.breakGlass = new BreakGlass(api, info.id);
    this.consume = new Consume(api, info.id);
    this.audit = new Audit(api, info.id);
  }

  /** Spawns a child with at most what this session has. It needs a key. */
  async spawn(terms: Body<"spawn_session"> = {}, options?: CallOptions): Promise<Session> {
    const given = { path: this.path, body: terms };
    return sessionOf(this.api, await this.api.callEngine("spawn_session", given, options));
  }

  /** New sessions that begin with this one's files: all of them, or none. It needs a key. */
  async fork(count: number, options?: CallOptions): Promise<Session[]> {
    const given = { path: this.path, body: { count } };
    const answer = await this.api.call("fork_session", given, within(COPY, options ?? {}));
    return answer.sessions.map((each) => sessionOf(this.api, each));
  }

  // What happens

  /**
   * The session's audit events after that `seq`, until the session ends.
   *
   * Survives broken connections; each event is yielded once.
   */
  async *events(
    { after = 0 }: { readonly after?: number } = {},
    options: CallOptions = {},
  ): AsyncGenerator<AuditEvent, void> {
    let terminated = false;
    const isOver = async () => terminated || !(await this.#lives(options));
    const given = { path: this.path };
    try {
      for await (const { data } of resumed(
        ...([this.api, "follow_session", given, after, isOver, options] as const),
      )) {
        terminated ||= data.operation === "session.terminated";
        yield data;
      }
    } catch (error) {
      // A handle is invalid once its session has ended.
      if (!(terminated && error instanceof UnauthorizedError)) throw error;
    }
  }

  /** Explains how the session's level decides a command or a path; nothing is run. */
  async explain(
    what: Omit<Body<"explain_policy">, "session" | "level" | "policy">,
    options?: CallOptions,
  ): Promise<Explanation> {
    const body = { ...what, session: this.id };
    return await this.api.call("explain_policy", { body }, options);
  }

  /** The current session, with its processes, usage, streams and latest denials. */
  async refresh(options?: CallOptions): Promise<InspectedSession> {
    const info = await this.api.call("inspect_session", { path: this.path }, options);
    this.info = info;
    return info;
  }

  /** The session's budget: limits, consumption, and what is left. */
  async budget(options?: CallOptions): Promise<Budget> {
    return await this.api.call("show_budget", { path: this.path }, options);
  }

  /** Counts tokens and dollars that your own calls of models used for the session. */
  async reportUsage(used: Body<"report_usage">, options?: CallOptions): Promise<Budget> {
    return await this.api.call("report_usage", { path: this.path, body: used }, options);
  }

  // Settings and lifecycle

  /** The session's settings. */
  async settings(options?: CallOptions): Promise<SessionSettings> {
    return await this.api.call("show_settings", { path: this.path }, options);
  }

  /**
   * Changes settings: the permission level, which ends running commands, or the time-outs.
   *
   * `keep_alive` lengthens the time-outs so that none ends the session for so many seconds from now;
   * the answer's `deadlines` say when it ends.
   */
  async setSettings(
    settings: Body<"change_settings">["settings"],
    options?: CallOptions,
  ): Promise<SessionSettings> {
    const given = { path: this.path, body: { settings } };
    return await this.api.callEngine("change_settings", given, options);
  }

  /** Changes the time-outs, in seconds: without activity, and from the session's creation. */
  async setTimeout(
    { idle, wall }: { readonly idle?: number; readonly wall?: number },
    options?: CallOptions,
  ): Promise<SessionSettings> {
    return await this.setSettings({ idle_timeout: idle, wall_timeout: wall }, options);
  }

  /** Lengthens the time-outs so that neither ends the session for so many seconds from now. */
  async keepAlive(seconds: number, options?: CallOptions): Promise<SessionSettings> {
    return await this.setSettings({ keep_alive: seconds }, options);
  }

  /** Names the episode of the session's work; null: it has none. */
  async setEpisode(episode: string | null, options?: CallOptions): Promise<SessionInfo> {
    const given = { path: this.path, body: { episode_id: episode } };
    return (this.info = await this.api.call("set_episode", given, options));
  }

  /**
   * The session as one archive, for `Paddock.restore`, as it arrives.
   *
   * It has the turns, the budget, the policy, the workspace and what is staged, but no secrets.
   * Nothing may run in the session.
   */
  async snapshot(options: CallOptions = {}): Promise<ReadableStream<Uint8Array>> {
    const given = { path: this.path };
    const patient = within(SNAPSHOT_SECONDS, options);
    return streamOf((await this.api.download("take_snapshot", given, patient)).pieces);
  }

  /** Freezes every process. */
  async pause(options?: CallOptions): Promise<SessionInfo> {
    return await this.#change("pause_session", options);
  }

  /** Continues the session. */
  async resume(options?: CallOptions): Promise<SessionInfo> {
    return await this.#change("resume_session", options);
  }

  /** Ends the session as a success. */
  async complete(options?: CallOptions): Promise<SessionInfo> {
    return await this.#change("complete_session", options);
  }

  /** Ends the session as a failure. */
  async abort(options?: CallOptions): Promise<SessionInfo> {
    return await this.#change("abort_session", options);
  }

  /** Ends everything that runs in the session, which continues; a message waits for a run. */
  async interrupt(message?: string, options?: CallOptions): Promise<SessionInfo> {
    return await this.#change("interrupt_session", options, message === undefined ? {} : { message });
  }

  /** Creates a new handle, which invalidates the old one. */
  async rotateHandle(options?: CallOptions): Promise<string> {
    const given = { path: this.path, body: {} };
    const { handle } = await this.api.call("rotate_handle", given, options);
    return (this.handle = handle);
  }

  /** Ends the session; with `purge`, also removes its workspace. One that has ended is no error. */
  async close({ purge = false } = {}, options?: CallOptions): Promise<void> {
    const given = { path: this.path, query: { purge } };
    const answer = await this.api.callEngine("close_session", given, options);
    this.#closed = true;
    if ("status" in answer) this.info = answer; // a session that ended long ago has no object
  }

  protected override async leave(): Promise<void> {
    if (this.#closed) return;
    try {
      await this.close();
    } catch (error) {
      if (!(error instanceof NotFoundError)) throw error;
    }
  }

  async #change(
    name: Change,
    options?: CallOptions,
    body: { readonly message?: string } = {},
  ): Promise<SessionInfo> {
    return (this.info = await this.api.callEngine(name, { path: this.path, body }, options));
  }

  async #lives(options: CallOptions): Promise<boolean> {
    try {
      return LIVE.includes((await this.refresh(options)).status);
    } catch (error) {
      if (error instanceof NotFoundError) return false;
      throw error;
    }
  }
}

/** The session that an answer shows. */
export function sessionOf(api: Api, view: object): Session {
  // `info` may be shown and logged, so it must not contain the handle.
  const { handle, ...info } = view as SessionInfo & { readonly handle?: string };
  return new Session(api, info, handle);
}
