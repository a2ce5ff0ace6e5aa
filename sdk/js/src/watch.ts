/** Changes of files, as they happen. */

import type { EventOf } from "./api.js";
import { Disposable } from "./disposal.js";
import type { FileChange } from "./generated/contract.js";

type Events = AsyncGenerator<EventOf<"watch_files">, void>;

/** A watch that has begun. Leaving the iteration ends it. */
export class Watch extends Disposable implements AsyncIterableIterator<FileChange> {
  constructor(private readonly events: Events) {
    super();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** The next change; none once the server has ended the watch. */
  async next(): Promise<IteratorResult<FileChange, undefined>> {
    for (;;) {
      const { done, value } = await this.events.next();
      if (done || value.event === "end") return await this.return();
      if (value.event === "change") return { done: false, value: value.data };
    }
  }

  /** Ends the watch. */
  async return(): Promise<IteratorReturnResult<undefined>> {
    await this.events.return();
    return { done: true, value: undefined };
  }

  protected override async leave(): Promise<void> {
    await this.return();
  }
}

/** The watch of these events, once it has begun. */
export async function begun(events: Events): Promise<Watch> {
  await events.next(); // `ready`
  return new Watch(events);
}
