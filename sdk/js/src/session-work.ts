/** What is done in a session itself: commands, code, runs of models. */

import type { Api, Body } from "./api.js";
import { type CodeEvent, type CodeTerms, codeEvents, codeResult } from "./code.js";
import {
  type CommandLine,
  type ExecEvent,
  type ExecTerms,
  type Finished,
  type StreamTerms,
  execBody,
  runStreamed,
  runToEnd,
  runTool,
} from "./commands.js";
import { Disposable } from "./disposal.js";
import type { CodeResult, Run, SpawnEnd, Timeline, Tool } from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { type RunSocket, openRunSocket } from "./run-socket.js";
import { type Messages, type RunEvent, type RunTerms, Runs } from "./runs.js";
import { type SpawnEvent, spawnEnd, spawnEvents } from "./spawns.js";

/** The work of a session; its other parts are members of `Session`. */
export abstract class SessionWork extends Disposable {
  /** The session's part of paths. */
  protected readonly path: { readonly session_id: string };
  readonly #runs: Runs;

  constructor(
    protected readonly api: Api,
    readonly id: string,
  ) {
    super();
    this.path = { session_id: id };
    this.#runs = new Runs(api, this.path);
  }

  // Commands

  /**
   * Runs a command and waits for its end; a command that fails is a result, not an error.
   *
   * A broken connection or an aborted signal ends the command.
   */
  async exec(
    command: CommandLine,
    terms: ExecTerms = {},
    options: CallOptions = {},
  ): Promise<Finished> {
    return await runToEnd(this.api, this.id, execBody(command, terms), options);
  }

  /**
   * Has bash run a line, such as `cd a && make 2>&1 | tail`, and waits for its end.
   *
   * Only at levels that permit any command. Each line begins anew; `shells` keep their state.
   */
  async shell(
    line: string,
    terms: ExecTerms = {},
    options: CallOptions = {},
  ): Promise<Finished> {
    return await this.exec({ shell: line }, terms, options);
  }

  /**
   * Runs a command and yields its events as they happen.
   *
   * The command survives a broken connection, and the stream continues where it was; leaving the
   * stream early kills the command, and so does `timeout` (120 seconds by default) if this client
   * vanishes. With `resume: false`, a broken connection ends the command.
   */
  execStream(
    command: CommandLine,
    terms: StreamTerms = {},
    options: CallOptions = {},
  ): AsyncGenerator<ExecEvent, void> {
    return runStreamed(this.api, this.id, command, terms, options);
  }

  /**
   * Runs a cell of code and waits for its end; an exception in it is a result, not an error.
   *
   * A broken connection or an aborted signal interrupts the cell.
   */
  async runCode(code: string, terms: CodeTerms = {}, options?: CallOptions): Promise<CodeResult> {
    return await codeResult(this.runCodeStream(code, terms, options));
  }

  /** Runs a cell of code and yields what comes of it; leaving early interrupts the cell. */
  runCodeStream(
    code: string,
    terms: CodeTerms = {},
    options?: CallOptions,
  ): AsyncGenerator<CodeEvent, void> {
    return codeEvents(this.api, this.id, { ...terms, code }, options);
  }

  /**
   * Runs one of the operator's oneshot tools with its arguments, and waits for its end.
   *
   * `wait`: seconds to wait for a person, if the tool needs approval. Throws `ApprovalPendingError`
   * while it is undecided.
   */
  async runTool(
    tool: string,
    toolArguments: Readonly<Record<string, string>> = {},
    terms: { readonly timeout?: number; readonly wait?: number } = {},
    options: CallOptions = {},
  ): Promise<Finished> {
    const body = { ...terms, tool, arguments: toolArguments };
    return await runTool(this.api, this.id, body, options);
  }

  /** All commands of all tools, and whether this session could be allowed to use each. */
  async tools(options?: CallOptions): Promise<readonly Tool[]> {
    return (await this.api.call("list_tools", { path: this.path }, options)).items;
  }

  // Runs of models

  /** Sends messages to a model that works in the session, and waits for the end of its run. */
  async send(messages: Messages, terms: RunTerms = {}, options?: CallOptions): Promise<Run> {
    return await this.#runs.send(messages, terms, options);
  }

  /** Like `send`, but yields what happens, and the run at its `end`. */
  sendStream(
    messages: Messages,
    terms: RunTerms = {},
    options?: CallOptions,
  ): AsyncGenerator<RunEvent, void> {
    return this.#runs.stream(messages, terms, options);
  }

  /** Runs a model with what was said before and what is queued; else like `send`. */
  async render(terms: RunTerms = {}, options?: CallOptions): Promise<Run> {
    return await this.#runs.render(terms, options);
  }

  /** Like `render`, but yields what happens, and the run at its `end`. */
  renderStream(terms: RunTerms = {}, options?: CallOptions): AsyncGenerator<RunEvent, void> {
    return this.#runs.renderStream(terms, options);
  }

  /** Keeps messages for the next run, and runs nothing; how many wait. */
  async queue(messages: Messages, options?: CallOptions): Promise<number> {
    return await this.#runs.queue(messages, options);
  }

  /** What was said to models, by them and by tools, in order: entries above `after`. */
  async timeline(
    query: { after?: number; limit?: number } = {},
    options?: CallOptions,
  ): Promise<Timeline> {
    return await this.#runs.timeline(query, options);
  }

  /** A WebSocket on which one message after another is sent, and their runs are followed. */
  async runSocket(options?: CallOptions): Promise<RunSocket> {
    return await openRunSocket(this.api, this.id, options);
  }

  /** Spawns a child for a run, and returns how that has ended: what fails in it is its result. */
  async spawnRun(terms: Body<"spawn_session">, options?: CallOptions): Promise<SpawnEnd> {
    return await spawnEnd(this.spawnStream(terms, options));
  }

  /** Like `spawnRun`, but yields what happens, to its `spawn_end`. */
  spawnStream(
    terms: Body<"spawn_session">,
    options?: CallOptions,
  ): AsyncGenerator<SpawnEvent, void> {
    return spawnEvents(this.api, this.id, terms, options);
  }
}
