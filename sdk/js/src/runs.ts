/** Runs: a model that works in a session. */

import type { Api, Body, EventOf } from "./api.js";
import { ConnectionLostError } from "./errors.js";
import type { Run, Timeline } from "./generated/contract.js";
import type { CallOptions } from "./http.js";

/** The terms of a run, as the API has them. */
export type RunTerms = Body<"render_session">;
/** What happens in a run, and `end` with the `Run` itself. */
export type RunEvent = EventOf<"send_messages">;

/** Texts of the user: one, or several. */
export type Messages = string | readonly string[];

/** Sends messages to models, and reads what was said. */
export class Runs {
  constructor(
    private readonly api: Api,
    private readonly path: { readonly session_id: string },
  ) {}

  /** The events of a run with these messages. */
  stream(
    messages: Messages,
    terms: RunTerms,
    options?: CallOptions,
  ): AsyncGenerator<RunEvent, void> {
    const given = { path: this.path, body: { ...terms, ...said(messages) } };
    return this.api.eventsTo("end", "send_messages", given, options);
  }

  /** The run with these messages, once it has ended. */
  async send(messages: Messages, terms: RunTerms, options?: CallOptions): Promise<Run> {
    return await ended(this.stream(messages, terms, options));
  }

  /** The events of a run with what was said before and what is queued. */
  renderStream(terms: RunTerms, options?: CallOptions): AsyncGenerator<RunEvent, void> {
    const given = { path: this.path, body: terms };
    return this.api.eventsTo("end", "render_session", given, options);
  }

  /** That run, once it has ended. */
  async render(terms: RunTerms, options?: CallOptions): Promise<Run> {
    return await ended(this.renderStream(terms, options));
  }

  /** Keeps messages for the next run; how many wait. */
  async queue(messages: Messages, options?: CallOptions): Promise<number> {
    const given = { path: this.path, body: said(messages) };
    return (await this.api.call("queue_messages", given, options)).queued;
  }

  /** What was said, in order. */
  async timeline(
    query: { after?: number; limit?: number },
    options?: CallOptions,
  ): Promise<Timeline> {
    return await this.api.call("read_timeline", { path: this.path, query }, options);
  }
}

function said(messages: Messages) {
  const texts = typeof messages === "string" ? [messages] : messages;
  return { messages: texts.map((content) => ({ role: "user" as const, content })) };
}

/** A stream has heartbeats, so a run may take any time. */
async function ended(events: AsyncIterable<RunEvent>): Promise<Run> {
  for await (const event of events) if (event.event === "end") return event.data;
  throw new ConnectionLostError("the stream of the run has no end");
}
