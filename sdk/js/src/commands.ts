/** Commands of a session, run to their end or followed to it. */

import type { Api, Body, EventOf } from "./api.js";
import { inputMembers, joined, printed } from "./bytes.js";
import { ApprovalPendingError, ConnectionLostError, PaddockError } from "./errors.js";
import type { ExitData, OutputData } from "./generated/contract.js";
import type { CallOptions } from "./http.js";
import { resumed } from "./resumed.js";
import { isPassing } from "./retry.js";

/**
 * A command: a line that is split into words, or the words themselves. No shell reads it.
 *
 * `{ shell }` is a line for bash, with pipes and redirections, at levels that permit any command.
 */
export type CommandLine = string | readonly string[] | { readonly shell: string };

type Own = "command" | "argv" | "shell" | "tool" | "arguments" | "wait" | "background";
type Input = "stdin" | "stdin_base64";
/** The terms of a command, as the API has them; `stdin` may be bytes. */
export interface ExecTerms extends Omit<Body<"exec">, Own | Input> {
  readonly stdin?: string | Uint8Array | undefined;
}

/** The terms of a streamed command. */
export interface StreamTerms extends ExecTerms {
  /** Whether the command survives a broken connection; by default it does. */
  readonly resume?: boolean | undefined;
}

/** An event of a command: `start`, `stdout`, `stderr`, and `exit` at its end. */
export type ExecEvent = EventOf<"exec">;

// A command that outlives its connection needs a time limit; every packaged level permits this one.
const STREAM_SECONDS = 120;
const KILL_SECONDS = 5;
const MOST_KEPT_BYTES = 32 * 1024 * 1024;

export interface Finished extends ExitData {}

/** The result and the output of a command. At most its first 32 MiB are kept. */
export class Finished {
  /** What was printed to standard output, as bytes. */
  readonly stdoutBytes: Uint8Array;
  /** What was printed to standard error, as bytes. */
  readonly stderrBytes: Uint8Array;

  constructor(exit: ExitData, output: Kept) {
    Object.assign(this, exit);
    this.truncated = exit.truncated || output.cut > 0;
    this.cut_bytes = exit.cut_bytes + output.cut;
    this.stdoutBytes = joined(output.stdout);
    this.stderrBytes = joined(output.stderr);
  }

  /** Whether the command ended by itself with exit code 0. */
  get ok(): boolean {
    return this.exit_code === 0;
  }

  /** Standard output as text; invalid UTF-8 is replaced. */
  get stdout(): string {
    return new TextDecoder().decode(this.stdoutBytes);
  }

  /** Standard error as text; invalid UTF-8 is replaced. */
  get stderr(): string {
    return new TextDecoder().decode(this.stderrBytes);
  }
}

/** Output that has come. */
export class Kept {
  readonly stdout: Uint8Array[] = [];
  readonly stderr: Uint8Array[] = [];
  cut = 0;
  #room = MOST_KEPT_BYTES;

  add(stream: "stdout" | "stderr", data: OutputData): void {
    const bytes = printed(data.text, data.data_base64);
    const kept = bytes.subarray(0, this.#room);
    this.#room -= kept.length;
    this.cut += bytes.length - kept.length;
    if (kept.length) this[stream].push(kept);
  }
}

/** The body of a request for that command. */
export function execBody(command: CommandLine, terms: ExecTerms): Body<"exec"> {
  const { stdin, ...others } = terms;
  return { ...others, ...words(command), ...inputMembers("stdin", stdin) };
}

function words(command: CommandLine) {
  if (typeof command === "string") return { command };
  return "shell" in command ? { shell: command.shell } : { argv: command };
}

/** Runs a command and waits for its end. Its stream has heartbeats, so it may take any time. */
export async function runToEnd(
  api: Api,
  session: string,
  body: Body<"exec">,
  options: CallOptions,
): Promise<Finished> {
  const output = new Kept();
  const given = { path: { session_id: session }, body };
  for await (const event of api.eventsTo("exit", "exec", given, options)) {
    if (event.event === "exit") return new Finished(event.data, output);
    if (event.event !== "start") output.add(event.event, event.data);
  }
  throw new ConnectionLostError("the stream of the command ends too soon");
}

/** Runs a oneshot tool, whose command may wait for a person. */
export async function runTool(
  api: Api,
  session: string,
  body: Body<"exec">,
  options: CallOptions,
): Promise<Finished> {
  const seconds = (body.timeout ?? 3600) + (body.wait ?? 0) + 60;
  const answer = await api.call(
    "exec",
    { path: { session_id: session }, body },
    { ...options, timeout: options.timeout ?? seconds },
  );
  if ("approval" in answer) throw new ApprovalPendingError(answer.approval.id);
  if (!("stdout" in answer)) throw new PaddockError("the command runs in the background");
  const { stdout, stderr, stdout_base64, stderr_base64, ...exit } = answer;
  const output = new Kept();
  output.stdout.push(printed(stdout, stdout_base64));
  output.stderr.push(printed(stderr, stderr_base64));
  return new Finished(exit, output);
}

/** Runs a command and yields its events; with `resume`, over any number of connections. */
export async function* runStreamed(
  api: Api,
  session: string,
  command: CommandLine,
  { resume = true, ...terms }: StreamTerms,
  options: CallOptions,
): AsyncGenerator<ExecEvent, void> {
  const body = execBody(command, terms);
  const lasting = { ...body, timeout: body.timeout ?? STREAM_SECONDS, background: true };
  const given = { path: { session_id: session }, body: resume ? lasting : body };
  let id: string | undefined;
  let position = 0;
  let ended = false;
  try {
    try {
      for await (const event of api.eventsTo("exit", "exec", given, options)) {
        if (event.event === "start") id = event.data.command_id;
        position = event.id ?? position;
        ended = event.event === "exit";
        yield event;
      }
    } catch (error) {
      // Until its start is known, there is nothing to resume.
      if (!resume || id === undefined || !isPassing(error)) throw error;
    }
    if (ended || id === undefined) return;
    for await (const event of followed(api, session, id, position, options)) {
      ended = event.event === "exit";
      if (event.event !== "start") yield event;
    }
  } finally {
    if (resume && id !== undefined && !ended) await kill(api, session, id);
  }
}

/** A command's events from an offset of its output on, to its end. */
export async function* followed(
  api: Api,
  session: string,
  command: string,
  after: number,
  options: CallOptions,
): AsyncGenerator<ExecEvent, void> {
  const given = { path: { session_id: session, command_id: command } };
  const never = () => Promise.resolve(false);
  let begun = false;
  for await (const event of resumed(api, "read_process", given, after, never, options)) {
    if (event.event !== "start" || !begun) yield event;
    begun = true;
    if (event.event === "exit") return;
  }
}

/** Ends a command whose caller has left; if this fails, its time limit ends it. */
async function kill(api: Api, session: string, command: string): Promise<void> {
  const path = { session_id: session, command_id: command };
  const given = { path, body: { signal: "KILL" } } as const;
  try {
    await api.call("signal_process", given, { timeout: KILL_SECONDS });
  } catch (error) {
    if (!(error instanceof PaddockError)) throw error;
  }
}
