/** Shells that keep their state between commands. */

import type { Api } from "./api.js";
import { ENGINE_SECONDS, within } from "./api.js";
import type { ShellAnswer, Shell as ShellInfo } from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { OfSession } from "./resource.js";

const DEFAULT_SECONDS = 60;
// An answer comes that much after its time at the latest: the command is stopped, then recorded.
const LATE_SECONDS = 60;

/** When a command's answer comes; `timeout` is in seconds, also fractions. */
export interface AnswerTerms {
  readonly timeout?: number;
  /** Answer as soon as the output contains this text, while the command runs on. */
  readonly expect?: string;
}

/** A shell: its directory, variables, functions and jobs stay between commands. */
export class Shell {
  readonly name: string;
  readonly #path: { readonly session_id: string; readonly name: string };

  constructor(
    private readonly api: Api,
    session: string,
    /** The shell as of the last answer that described it; `refresh` requests it again. */
    public info: ShellInfo,
  ) {
    this.name = info.name;
    this.#path = { session_id: session, name: info.name };
  }

  /** Runs a command, of any number of lines; returns what has come of it. */
  async run(
    command: string,
    terms: AnswerTerms = {},
    options: CallOptions = {},
  ): Promise<ShellAnswer> {
    const given = { path: this.#path, body: { command, ...terms } };
    return await this.api.call("run_in_shell", given, answered(terms, options));
  }

  /**
   * Types a text into the program that runs; returns what has come of it.
   *
   * A line ends with a line feed. An empty text only waits for the next answer.
   */
  async input(
    text = "",
    terms: AnswerTerms = {},
    options: CallOptions = {},
  ): Promise<ShellAnswer> {
    const given = { path: this.#path, body: { text, ...terms } };
    return await this.api.call("give_shell_input", given, answered(terms, options));
  }

  /** Interrupts the command that runs, as Ctrl-C does; the shell stays. */
  async interrupt(options?: CallOptions): Promise<ShellInfo> {
    return (this.info = await this.api.call("interrupt_shell", { path: this.#path }, options));
  }

  /** The shell as it is now. */
  async refresh(options?: CallOptions): Promise<ShellInfo> {
    return (this.info = await this.api.call("read_shell", { path: this.#path }, options));
  }

  /** Ends the shell and everything that it has started. */
  async close(options: CallOptions = {}): Promise<ShellInfo> {
    const engine = within(ENGINE_SECONDS, options);
    return (this.info = await this.api.call("close_shell", { path: this.#path }, engine));
  }
}

/** The shells of a session that keep their state. */
export class Shells extends OfSession {
  /** The shell of that name, which is started if there is none. */
  async create(
    name = "default",
    terms: { readonly cwd?: string; readonly env?: Record<string, string> } = {},
    options: CallOptions = {},
  ): Promise<Shell> {
    const given = { path: this.path, body: { name, ...terms } };
    return this.#of(await this.api.call("create_shell", given, within(ENGINE_SECONDS, options)));
  }

  /** The shell of that name. */
  async get(name = "default", options?: CallOptions): Promise<Shell> {
    const given = { path: { ...this.path, name } };
    return this.#of(await this.api.call("read_shell", given, options));
  }

  /** The shells that have not ended, oldest first. */
  async list(options?: CallOptions): Promise<readonly Shell[]> {
    const { items } = await this.api.call("list_shells", { path: this.path }, options);
    return items.map((each) => this.#of(each));
  }

  #of(info: ShellInfo): Shell {
    return new Shell(this.api, this.path.session_id, info);
  }
}

function answered(terms: AnswerTerms, options: CallOptions): CallOptions {
  return within((terms.timeout ?? DEFAULT_SECONDS) + LATE_SECONDS, options);
}
