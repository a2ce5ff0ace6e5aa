/** Commands of a session that have an id: begun, followed, fed and signalled. */

import type { Body } from "./api.js";
import { collected, inputMembers } from "./bytes.js";
import { type CommandLine, type ExecEvent, type ExecTerms, execBody, followed } from "./commands.js";
import { ConnectionLostError } from "./errors.js";
import type { Command, CommandOutput, ExitData } from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { OfSession } from "./resource.js";

/** A session's background commands, and the recent ones. */
export class Processes extends OfSession {
  /**
   * Starts a command in the background; returns when it has started. It outlives its client.
   *
   * With `stdin_open`, `stdin` can send it input. Without a `timeout`, it may run as long as its
   * session.
   */
  async start(command: CommandLine, terms: ExecTerms = {}, options?: CallOptions): Promise<Command> {
    const body = { ...execBody(command, terms), background: true };
    return (await this.api.call("exec", { path: this.path, body }, options)) as Command;
  }

  /** A command with its current output, from the byte `after` on. */
  async get(command: string, after = 0, options?: CallOptions): Promise<CommandOutput> {
    const given = { path: this.#of(command), query: { after } };
    return await this.api.call("read_process", given, options);
  }

  /** A command's events, with its output from the byte `after` on; survives broken connections. */
  follow(command: string, after = 0, options: CallOptions = {}): AsyncGenerator<ExecEvent, void> {
    return followed(this.api, this.path.session_id, command, after, options);
  }

  /** The result of a command, once it has ended; only the command's own time limit applies. */
  async wait(command: string, options?: CallOptions): Promise<ExitData> {
    for await (const event of this.follow(command, 0, options)) {
      if (event.event === "exit") return event.data;
    }
    throw new ConnectionLostError("the stream of the command has no end");
  }

  /** What a command prints, to its end, as bytes; `stream`: only that one. */
  async output(
    command: string,
    query: { after?: number; stream?: "stdout" | "stderr" } = {},
    options?: CallOptions,
  ): Promise<Uint8Array> {
    const given = { path: this.#of(command), query };
    const { pieces } = await this.api.download("read_output", given, options);
    return await collected(pieces, Infinity, command);
  }

  /**
   * Sends input to a command that was started with `stdin_open`; `close` ends its input.
   *
   * At most 1 MiB at once. Waits until the command has read earlier input.
   */
  async stdin(
    command: string,
    data: string | Uint8Array = "",
    { close = false } = {},
    options?: CallOptions,
  ): Promise<void> {
    const body = { ...inputMembers("data", data), close };
    await this.api.call("feed_process", { path: this.#of(command), body }, options);
  }

  /** Sends a signal, by name or number, to the command's process group. */
  async signal(
    command: string,
    signal: Body<"signal_process">["signal"] = "TERM",
    options?: CallOptions,
  ): Promise<void> {
    await this.api.call("signal_process", { path: this.#of(command), body: { signal } }, options);
  }

  /** All running commands and the latest ended ones, oldest first. */
  async list(options?: CallOptions): Promise<readonly Command[]> {
    return (await this.api.call("list_processes", { path: this.path }, options)).items;
  }

  #of(command: string) {
    return { ...this.path, command_id: command };
  }
}
