/** Terminals: interactive tools of a session that receive declared lines, one at a time. */

import type { Api, Query } from "./api.js";
import { ENGINE_SECONDS, within } from "./api.js";
import type { Interaction, Terminal as TerminalInfo } from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { type LiveTerminal, openLive } from "./live-terminal.js";
import { OfSession } from "./resource.js";

// A manifest may allow its tool an hour for an answer.
const ANSWER_SECONDS = 3660;

/** One tool on its own terminal. */
export class Terminal {
  readonly id: string;
  readonly #path: { readonly session_id: string; readonly terminal_id: string };

  constructor(
    private readonly api: Api,
    session: string,
    /** The terminal as of the last answer; `refresh` requests it again. */
    public info: TerminalInfo,
    private readonly query: { readonly incarnation?: number } = {},
  ) {
    this.id = info.id;
    this.#path = { session_id: session, terminal_id: info.id };
  }

  /**
   * Sends one line if the tool's manifest and the operator's rules allow it.
   *
   * `command` is the tool's command for this line, by name; `wait`: seconds to wait for a person,
   * if the line needs approval. While undecided, the status is `pending`, and sending the same line
   * again continues to wait.
   */
  async send(
    command: string,
    text: string,
    { wait = 0 } = {},
    options: CallOptions = {},
  ): Promise<Interaction> {
    const body = { tool: `${this.info.tool}.${command}`, command: text, wait };
    const given = { path: this.#path, body };
    return await this.api.call("interact", given, within(ANSWER_SECONDS + wait, options));
  }

  /** What has happened in the terminal, line by line; also after its end. */
  async transcript(options?: CallOptions): Promise<string> {
    const given = { path: this.#path, query: this.query };
    return await this.api.text("read_transcript", given, "text/plain", options);
  }

  /** What was shown and typed, as asciicast v2; also after its end. */
  async recording(options?: CallOptions): Promise<string> {
    const given = { path: this.#path, query: this.query };
    return await this.api.text("read_recording", given, "application/x-asciicast", options);
  }

  /** The current terminal. */
  async refresh(options?: CallOptions): Promise<TerminalInfo> {
    const given = { path: this.#path, query: this.query };
    return (this.info = await this.api.call("read_terminal", given, options));
  }

  /** Ends the tool; an ended terminal stays unchanged. */
  async close(options: CallOptions = {}): Promise<TerminalInfo> {
    const given = { path: this.#path };
    const engine = within(ENGINE_SECONDS, options);
    return (this.info = await this.api.call("close_terminal", given, engine));
  }
}

/** The terminals of a session; past ones can be read long after its end. */
export class Terminals extends OfSession {
  /** If several sessions had the id, `incarnation` selects one, from 1. */
  constructor(
    api: Api,
    session: string,
    private readonly query: { readonly incarnation?: number } = {},
  ) {
    super(api, session);
  }

  /** Opens a terminal for that tool; returns at its first prompt. */
  async open(tool: string, options: CallOptions = {}): Promise<Terminal> {
    const given = { path: this.path, body: { tool } };
    return this.#of(await this.api.call("open_terminal", given, within(ANSWER_SECONDS, options)));
  }

  /** A live view of the terminal `pty`, or a new shell where the level allows any command. */
  async live(
    query: Query<"open_live_terminal"> = {},
    options?: CallOptions,
  ): Promise<LiveTerminal> {
    return await openLive(this.api, this.path.session_id, query, options);
  }

  /** A past or present terminal of the session. */
  async get(id: string, options?: CallOptions): Promise<Terminal> {
    const given = { path: { ...this.path, terminal_id: id }, query: this.query };
    return this.#of(await this.api.call("read_terminal", given, options));
  }

  /** The past and present terminals of the session, oldest first. */
  async list(options?: CallOptions): Promise<readonly Terminal[]> {
    const given = { path: this.path, query: this.query };
    const { items } = await this.api.call("list_terminals", given, options);
    return items.map((each) => this.#of(each));
  }

  #of(info: TerminalInfo): Terminal {
    return new Terminal(this.api, this.path.session_id, info, this.query);
  }
}
