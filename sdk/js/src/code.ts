/** Code of a session: cells, run to their end or followed to it, and their contexts. */

import type { Api, Body, EventOf } from "./api.js";
import { ConnectionLostError } from "./errors.js";
import type { CodeContext, CodeError, CodeResult, CodeValue } from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { OfSession } from "./resource.js";

/** The terms of a cell, as the API has them. */
export type CodeTerms = Omit<Body<"run_code">, "code">;
/** What comes of a cell: `start`, what it prints, its results, an `exception`, and `exit`. */
export type CodeEvent = EventOf<"run_code">;

/** The events of a cell. */
export function codeEvents(
  api: Api,
  session: string,
  body: Body<"run_code">,
  options?: CallOptions,
): AsyncGenerator<CodeEvent, void> {
  return api.eventsTo("exit", "run_code", { path: { session_id: session }, body }, options);
}

/** The result of a cell. Its stream has heartbeats, so it may take any time. */
export async function codeResult(events: AsyncIterable<CodeEvent>): Promise<CodeResult> {
  const printed = { stdout: "", stderr: "" };
  const results: CodeValue[] = [];
  let error: CodeError | null = null;
  let started = { context: "", language: "", cell: "", command_id: "" };
  for await (const event of events) {
    if (event.event === "start") started = event.data;
    else if (event.event === "result") results.push(event.data);
    else if (event.event === "exception") error = event.data;
    else if (event.event !== "exit") printed[event.event] += event.data.text;
    else return { ...started, ...event.data, ...printed, results, error };
  }
  throw new ConnectionLostError("the stream of the cell ends too soon");
}

/** The code contexts of a session: programs that keep names from cell to cell. */
export class CodeContexts extends OfSession {
  /** Creates a context. */
  async create(
    terms: Body<"create_code_context"> = {},
    options?: CallOptions,
  ): Promise<CodeContext> {
    return await this.api.call("create_code_context", { path: this.path, body: terms }, options);
  }

  /** The contexts, in the order of their creation. */
  async list(options?: CallOptions): Promise<readonly CodeContext[]> {
    return (await this.api.call("list_code_contexts", { path: this.path }, options)).items;
  }

  /** Begins a context anew, without its names. */
  async restart(name: string, options?: CallOptions): Promise<CodeContext> {
    const given = { path: { ...this.path, name }, body: {} };
    return await this.api.call("restart_code_context", given, options);
  }

  /** Interrupts the cell that the context executes. */
  async interrupt(name: string, options?: CallOptions): Promise<CodeContext> {
    const given = { path: { ...this.path, name }, body: {} };
    return await this.api.call("interrupt_code_context", given, options);
  }

  /** Ends a context, and the cell that it executes. */
  async remove(name: string, options?: CallOptions): Promise<CodeContext> {
    return await this.api.call("remove_code_context", { path: { ...this.path, name } }, options);
  }
}
