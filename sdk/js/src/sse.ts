/** Parses Server-Sent Events as they arrive. */

import { NotPaddockError } from "./errors.js";

/** One event: its name, its JSON data, and its id if it has one: a cluster's are texts. */
export interface ServerEvent {
  readonly event: string;
  readonly id: number | string | undefined;
  readonly data: unknown;
}

// An event has at most 256 KiB of output, and JSON may use six characters for each.
const MOST_EVENT_LENGTH = 8 * 1024 * 1024;

/** Finds the events in the bytes of a `text/event-stream`, however they are split. */
export class EventParser {
  readonly #decoder = new TextDecoder();
  #rest: string[] = [];
  #length = 0;
  #fields = new Map<string, string>();

  /** The events that are now complete. Throws `NotPaddockError`. */
  *feed(bytes: Uint8Array): Generator<ServerEvent> {
    const [first = "", ...lines] = this.#decoder.decode(bytes, { stream: true }).split("\n");
    this.#rest.push(first);
    this.#length += first.length;
    for (const line of lines) {
      const event = this.#take(this.#rest.join("").replace(/\r$/, ""));
      this.#rest = [line];
      this.#length = line.length;
      if (event) yield event;
    }
    if (this.#length > MOST_EVENT_LENGTH) {
      throw new NotPaddockError("the server sends an event without end");
    }
  }

  #take(line: string): ServerEvent | undefined {
    if (line) {
      const colon = line.indexOf(":");
      const name = colon < 0 ? line : line.slice(0, colon);
      // A line without a name is a comment.
      if (name) this.#fields.set(name, colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, ""));
      return undefined;
    }
    const fields = this.#fields;
    this.#fields = new Map();
    const data = fields.get("data");
    return data === undefined ? undefined : read(fields, data);
  }
}

function read(fields: ReadonlyMap<string, string>, text: string): ServerEvent {
  const id = fields.get("id");
  try {
    const data: unknown = JSON.parse(text);
    if (typeof data === "object" && data !== null) {
      return {
        event: fields.get("event") ?? "message",
        id: id !== undefined && /^\d{1,15}$/.test(id) ? Number(id) : id,
        data,
      };
    }
  } catch {
    // Not JSON.
  }
  throw new NotPaddockError("the server sends events that are not Paddock's");
}
