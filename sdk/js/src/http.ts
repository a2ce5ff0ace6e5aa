/** Requests with one credential: time limits, retries, and translation of errors. */

import { jsonObject, mediaType, notPaddock, refusal, translated } from "./answers.js";
import { Deadline, pause } from "./deadline.js";
import { ArgumentError } from "./errors.js";
import { type RetryPolicy, retryDelay } from "./retry.js";
import { EventParser, type ServerEvent } from "./sse.js";
import { traceHeaders } from "./trace-context.js";

/** An idle stream of events has a heartbeat every 15 seconds. */
export const HEARTBEAT_SECONDS = 45;

/** What every call takes. */
export interface CallOptions {
  /** Aborts the call, which then throws the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /** Seconds for the answer; for a stream, between two pieces of it. */
  readonly timeout?: number | undefined;
}

/** The options of a client. */
export interface Settings {
  readonly url: string;
  readonly timeout: number;
  readonly retry: RetryPolicy;
  readonly reconnect: number;
  readonly fetch: typeof fetch;
  readonly WebSocket: typeof WebSocket | undefined;
}

/** A request; `path` has its query. */
export interface Sending {
  readonly method: string;
  readonly path: string;
  readonly body?: BodyInit | undefined;
  readonly headers?: Readonly<Record<string, string>>;
  /** Statuses besides the successes that are answers, too. */
  readonly statuses?: readonly number[];
}

/** An answer whose body arrives in pieces. */
export interface Arriving {
  readonly headers: Headers;
  readonly pieces: AsyncGenerator<Uint8Array, void>;
  /** Ends the request; needed only if nothing of `pieces` is read. */
  end(): void;
}

/** Events that arrive, and the end of their request, as in `Arriving`. */
export interface ArrivingEvents {
  readonly events: AsyncGenerator<ServerEvent, void>;
  end(): void;
}

/** Sends requests, and reads the answers. */
export class Http {
  readonly #headers: Readonly<Record<string, string>>;

  constructor(
    readonly settings: Settings,
    readonly credential: string,
  ) {
    // Other text is no credential, and must not get into an error's text.
    if (!/^[\x21-\x7e]+$/.test(credential)) {
      throw new ArgumentError("the key must be printable ASCII, and not empty");
    }
    this.#headers = { Authorization: `Bearer ${credential}`, "Accept-Encoding": "identity" };
  }

  /** The JSON object of an answer; undefined if it has no content. */
  async json(sending: Sending, options: CallOptions): Promise<object | undefined> {
    return await this.#retried(sending, options, async (response) =>
      response.status === 204 ? undefined : await jsonObject(response),
    );
  }

  /** The text of an answer. */
  async text(sending: Sending, media: string, options: CallOptions): Promise<string> {
    return await this.#retried(sending, options, async (response) => {
      if (mediaType(response) !== media) throw notPaddock(response);
      return await response.text();
    });
  }

  /** The bytes of an answer as they arrive. Whoever leaves `pieces` early ends the request. */
  async open(sending: Sending, media: string, options: CallOptions): Promise<Arriving> {
    const what = label(sending);
    return await this.#retried(
      sending,
      options,
      async (response, deadline) => {
        if (mediaType(response) !== media) throw notPaddock(response);
        return {
          headers: response.headers,
          pieces: pieces(response, what, deadline),
          end: () => deadline.abandon(),
        };
      },
      true,
    );
  }

  /** The events of an answer, after the id `after` if given, once the answer has begun. */
  async events(
    sending: Sending,
    after: number | string | undefined,
    options: CallOptions,
  ): Promise<ArrivingEvents> {
    const headers: Record<string, string> = { Accept: "text/event-stream", ...sending.headers };
    if (after !== undefined) headers["Last-Event-ID"] = String(after);
    const opening = { ...sending, headers };
    const { pieces, end } = await this.open(opening, "text/event-stream", {
      ...options,
      timeout: options.timeout ?? HEARTBEAT_SECONDS,
    });
    return { events: parsed(pieces), end };
  }

  /** Sends a request, again if it may be, and reads its answer; `lasts`: `read` ends it later. */
  async #retried<T>(
    sending: Sending,
    options: CallOptions,
    read: (response: Response, deadline: Deadline) => Promise<T>,
    lasts = false,
  ): Promise<T> {
    const started = performance.now();
    for (let failures = 1; ; failures += 1) {
      const deadline = new Deadline(options.timeout ?? this.settings.timeout, options.signal);
      try {
        const answer = await read(await this.#send(sending, deadline), deadline);
        if (!lasts) deadline.end();
        return answer;
      } catch (failure) {
        deadline.abandon();
        const error = translated(failure, label(sending), deadline);
        const waited = (performance.now() - started) / 1000;
        const { retry } = this.settings;
        const delay = retryDelay(retry, sending.method, error, failures, waited);
        if (delay === undefined) throw error;
        await pause(delay, options.signal);
      }
    }
  }

  async #send(sending: Sending, deadline: Deadline): Promise<Response> {
    const { method, path, body, headers, statuses } = sending;
    const request: RequestInit & { duplex?: "half" } = {
      method,
      headers: { ...this.#headers, ...traceHeaders(), ...headers },
      signal: deadline.signal,
      // A redirect would send the credential elsewhere.
      redirect: "manual",
      cache: "no-store",
      credentials: "omit",
    };
    if (body !== undefined) request.body = body;
    if (body instanceof ReadableStream) request.duplex = "half";
    // Called without a receiver, as browsers demand.
    const { fetch } = this.settings;
    const response = await fetch(this.settings.url + path, request);
    if (response.ok || statuses?.includes(response.status)) return response;
    throw await refusal(response, label(sending));
  }
}

function label({ method, path }: Sending): string {
  return `${method} ${path.split("?", 1)[0]}`;
}

async function* parsed(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<ServerEvent, void> {
  const parser = new EventParser();
  for await (const piece of pieces) yield* parser.feed(piece);
}

async function* pieces(
  response: Response,
  what: string,
  deadline: Deadline,
): AsyncGenerator<Uint8Array, void> {
  const reader = response.body?.getReader();
  try {
    while (reader) {
      deadline.renew();
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } catch (error) {
    throw translated(error, what, deadline);
  } finally {
    deadline.abandon();
  }
}
