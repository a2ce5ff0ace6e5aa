/** Typed calls of the API's operations, by their names in the OpenAPI document. */

import { type Content, sent } from "./bytes.js";
import { ArgumentError, ConnectionLostError, apiError } from "./errors.js";
import type { Operations, Problem } from "./generated/contract.js";
import { OPERATIONS } from "./generated/operations.js";
import { type Arriving, type CallOptions, Http, type Sending, type Settings } from "./http.js";
import { type Socket, connect } from "./socket.js";
import type { ServerEvent } from "./sse.js";

/** The name of an operation. */
export type Name = keyof Operations;
/** The JSON object that an operation answers. */
export type Answer<N extends Name> = Operations[N]["answer"];
/** The body that an operation takes. */
export type Body<N extends Name> = NonNullable<Operations[N]["body"]>;
/** The query that an operation takes. */
export type Query<N extends Name> = Operations[N]["query"];
/** The events that an operation streams, without errors: these are thrown. */
export type EventOf<N extends Name> = Exclude<Operations[N]["events"], { event: "error" }>;

type Part<K extends string, T> = [T] extends [undefined]
  ? unknown
  : {} extends T
    ? { readonly [key in K]?: T }
    : { readonly [key in K]: T };
/** What an operation takes: the parts of its path, its query, and its body. */
export type Arguments<N extends Name> = Part<"path", Operations[N]["path"]> &
  Part<"query", Operations[N]["query"]> &
  Part<"body", Operations[N]["body"]>;
/** Arguments may be left out where all are optional. */
export type Given<N extends Name> =
  {} extends Arguments<N>
    ? [given?: Arguments<N>, options?: CallOptions]
    : [given: Arguments<N>, options?: CallOptions];

interface AnyArguments {
  readonly path?: Readonly<Record<string, string | number>>;
  readonly query?: Readonly<Record<string, unknown>>;
  readonly body?: unknown;
}

/** The longest time that the container engine may need, in seconds. */
export const ENGINE_SECONDS = 300;
/** For a stream of bytes: seconds between two pieces. */
const SILENCE_SECONDS = 60;
const TRANSFER_SECONDS = 3600;

/** The operations of one control plane, with one credential. */
export class Api {
  readonly #http: Http;

  constructor(
    readonly settings: Settings,
    credential: string,
  ) {
    this.#http = new Http(settings, credential);
  }

  /** The same control plane with another credential. */
  with(credential: string): Api {
    return new Api(this.settings, credential);
  }

  /** Calls an operation; its JSON answer. */
  async call<N extends Name>(name: N, ...[given, options]: Given<N>): Promise<Answer<N>> {
    return (await this.#http.json(sending(name, given), options ?? {})) as Answer<N>;
  }

  /** Like `call`, for one whose failure with that status is an answer, too. */
  async callEven<N extends Name>(status: number, name: N, options: CallOptions) {
    const asked = { ...sending(name), statuses: [status] };
    return (await this.#http.json(asked, options)) as Answer<N>;
  }

  /** Calls an operation that the engine takes part in. */
  async callEngine<N extends Name>(
    name: N,
    given: Arguments<N>,
    options: CallOptions = {},
    headers: Readonly<Record<string, string>> = {},
  ): Promise<Answer<N>> {
    const request = sending(name, given);
    const asked = { ...request, headers: { ...request.headers, ...headers } };
    return (await this.#http.json(asked, within(ENGINE_SECONDS, options))) as Answer<N>;
  }

  /** Calls an operation whose body is bytes; its JSON answer. */
  async upload<N extends Name>(
    name: N,
    given: Arguments<N>,
    content: Content,
    options: CallOptions = {},
    headers: Readonly<Record<string, string>> = {},
  ): Promise<Answer<N>> {
    const asked = { ...sending(name, given), headers };
    const patient = within(TRANSFER_SECONDS, options);
    const send = (body: BodyInit) => this.#http.json({ ...asked, body }, patient);
    return (await sent(content, send)) as Answer<N>;
  }

  /** Calls an operation that answers bytes. */
  async download<N extends Name>(
    name: N,
    given: Arguments<N>,
    options: CallOptions = {},
    media = "application/octet-stream",
    headers: Readonly<Record<string, string>> = {},
  ): Promise<Arriving> {
    const asked = { ...sending(name, given), headers };
    return await this.#http.open(asked, media, within(SILENCE_SECONDS, options));
  }

  /** Calls an operation that answers text. */
  async text<N extends Name>(
    name: N,
    given: Arguments<N>,
    media: string,
    options: CallOptions = {},
  ): Promise<string> {
    return await this.#http.text(sending(name, given), media, within(SILENCE_SECONDS, options));
  }

  /** Calls an operation that streams events. Throws what an `error` event has. */
  async *events<N extends Name>(
    name: N,
    given: Arguments<N>,
    options: CallOptions = {},
    after?: number | string,
  ): AsyncGenerator<EventOf<N>, void> {
    const { events } = await this.#http.events(sending(name, given), after, options);
    yield* known<N>(events);
  }

  /** Like `events`, but returns once the stream has begun; `end` ends it, also if it is not read. */
  async begunEvents<N extends Name>(name: N, given: Arguments<N>, options: CallOptions = {}) {
    const { events, end } = await this.#http.events(sending(name, given), undefined, options);
    return { events: known<N>(events), end };
  }

  /** Like `events`, for a stream with a last event. Throws if that does not come. */
  async *eventsTo<N extends Name>(
    last: EventOf<N>["event"],
    name: N,
    given: Arguments<N>,
    options: CallOptions = {},
  ): AsyncGenerator<EventOf<N>, void> {
    for await (const event of this.events(name, given, options)) {
      yield event;
      if ((event as { event: string }).event === last) return;
    }
    throw new ConnectionLostError(`the stream of ${name} ends too soon`);
  }

  /** Opens the WebSocket of an operation of a session, with a ticket. */
  async socket<N extends Name>(
    name: N,
    session: string,
    given: Arguments<N>,
    protocol: string,
    options: CallOptions = {},
  ): Promise<Socket> {
    const body = { session_id: session };
    const { ticket } = await this.call("create_ticket", { body }, options);
    const url = this.settings.url.replace(/^http/, "ws") + sending(name, given).path;
    const { WebSocket } = this.settings;
    const timeout = options.timeout ?? this.settings.timeout;
    const protocols = [protocol, `ticket.${ticket}`];
    return await connect(url, protocols, { ...options, WebSocket, timeout });
  }
}

async function* known<N extends Name>(
  events: AsyncIterable<ServerEvent>,
): AsyncGenerator<EventOf<N>, void> {
  for await (const event of events) {
    if (event.event === "error") throw eventError(event.data as Partial<Problem>);
    yield event as EventOf<N>;
  }
}

/** The error that an event of a stream has. */
export function eventError(problem: Partial<Problem>): Error {
  return apiError(problem.status ?? 500, problem);
}

/** The options with that limit, unless they have their own. */
export function within(seconds: number, options: CallOptions = {}): CallOptions {
  return { ...options, timeout: options.timeout ?? seconds };
}

function sending<N extends Name>(name: N, given: Arguments<N> | undefined = undefined): Sending {
  const { path = {}, query = {}, body } = (given ?? {}) as AnyArguments;
  const [method, template] = OPERATIONS[name];
  const filled = template.replace(/\{(\w+)\}/g, (_, part: string) => segment(part, path[part]));
  const request = { method, path: filled + search(query) };
  if (body === undefined) return request;
  return {
    ...request,
    body: JSON.stringify(body),
    headers: { "Content-Type": "application/json" },
  };
}

/** A name as one segment of a path. Throws `ArgumentError`. */
function segment(part: string, value: string | number | undefined): string {
  const text = String(value ?? "");
  if (!text) throw new ArgumentError(`${part} must not be empty`);
  // These would be steps of the path, however they are quoted.
  if (text === "." || text === "..") throw new ArgumentError(`${part} must not be ${text}`);
  try {
    return encodeURIComponent(text);
  } catch {
    throw new ArgumentError(`${part} has a lone surrogate`);
  }
}

function search(query: Readonly<Record<string, unknown>>): string {
  const known = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  const text = new URLSearchParams(known.map(([name, value]) => [name, String(value)])).toString();
  return text && `?${text}`;
}
