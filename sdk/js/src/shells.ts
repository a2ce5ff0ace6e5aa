/** Shells that keep their state between commands. */

import { type Api, type Body, ENGINE_SECONDS, within } from "./api.js";
import { Disposable } from "./disposal.js";
import type { Shell as ShellInfo, ShellAnswer } from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { OfSession } from "./resource.js";

// An answer comes that much after its time at the latest: the command is stopped, then recorded.
const LATE_SECONDS = 60;
const USUAL_SECONDS = 60;
const USUAL_NAME = "default";

type RunTerms = Omit<Body<"run_in_shell">, "command">;
type InputTerms = Omit<Body<"give_shell_input">, "text">;

/**
 * A shell of a session: its directory, variables, functions and jobs stay between commands.
 *
 * `await using` ends it.
 */
export class Shell extends Disposable {
  readonly name: string;
  readonly #path: { readonly session_id: string; readonly name: string };

  constructor(
    private readonly api: Api,
    session: string,
    /** The shell as of the last answer that described it; `refresh` requests it again. */
    public info: ShellInfo,
  ) {
    super();
    this.name = info.name;
    this.#path = { session_id: session, name: info.name };
  }

  /**
   * Runs a command, of any number of lines; what has come of it.
   *
   * After `timeout` seconds the command is interrupted, unless `at_timeout` is `continue`. With
   * `expect`, it returns as soon as the output contains this text, or one of these, while the
   * command runs on.
   */
  async run(command: string, terms: RunTerms = {}, options: CallOptions = {}): Promise<ShellAnswer> {
    const given = { path: this.#path, body: { ...terms, command } };
    return await this.api.call("run_in_shell", given, patient(terms.timeout, options));
  }

  /** Types a text into the program that runs; empty: only waits for the next answer. */
  async input(text = "", terms: InputTerms = {}, options: CallOptions = {}): Promise<ShellAnswer> {
    const given = { path: this.#path, body: { ...terms, text } };
    return await this.api.call("give_shell_input", given, patient(terms.timeout, options));
  }

  /** Interrupts the command that runs, as Ctrl-C does; the shell stays. */
  async interrupt(options?: CallOptions): Promise<ShellInfo> {
    const given = { path: this.#path, body: {} };
    return (this.info = await this.api.call("interrupt_shell", given, options));
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

  protected override async leave(): Promise<void> {
    await this.close();
  }
}

/** The shells of a session that keep their state. */
export class Shells extends OfSession {
  /** The shell of that name, which is started if there is none. */
  async create(
    name = USUAL_NAME,
    terms: Omit<Body<"create_shell">, "name"> = {},
    options?: CallOptions,
  ): Promise<Shell> {
    const given = { path: this.path, body: { ...terms, name } };
    return this.#of(await this.api.callEngine("create_shell", given, options));
  }

  /** The shell of that name. */
  async get(name = USUAL_NAME, options?: CallOptions): Promise<Shell> {
    return this.#of(await this.api.call("read_shell", { path: { ...this.path, name } }, options));
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

function patient(seconds: number | null | undefined, options: CallOptions): CallOptions {
  return within((seconds ?? USUAL_SECONDS) + LATE_SECONDS, options);
}
