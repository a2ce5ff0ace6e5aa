/** Streams that survive broken connections. */

import type { Api, Arguments, EventOf, Name } from "./api.js";
import { pause } from "./deadline.js";
import { ConnectionLostError } from "./errors.js";
import type { CallOptions } from "./http.js";
import { Patience, isPassing } from "./retry.js";

/**
 * The events of a stream, each once, however often the connection breaks.
 *
 * After a break it continues after the id of the last event. `isOver` tells whether an answer that
 * ended properly was complete. Temporary errors are thrown only after the client's `reconnect`
 * seconds.
 */
export async function* resumed<N extends Name>(
  api: Api,
  name: N,
  given: Arguments<N>,
  after: number | string | undefined,
  isOver: () => Promise<boolean>,
  options: CallOptions,
): AsyncGenerator<EventOf<N>, void> {
  const patience = new Patience(api.settings.reconnect);
  for (let position = after; ; ) {
    let delay: number;
    try {
      for await (const event of api.events(name, given, options, position)) {
        patience.renew();
        position = (event as { id: number | string | undefined }).id ?? position;
        yield event;
      }
      if (await isOver()) return;
      delay = patience.delay(new ConnectionLostError(`the stream of ${name} ends too soon`));
    } catch (error) {
      if (!isPassing(error)) throw error;
      delay = patience.delay(error);
    }
    await pause(delay, options.signal);
  }
}
