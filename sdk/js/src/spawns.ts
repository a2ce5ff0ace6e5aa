/** Children of a session: sessions of their own, or those in which one run of a model works. */

import type { Api, Body, EventOf } from "./api.js";
import { ConnectionLostError } from "./errors.js";
import type { SpawnEnd } from "./generated/contract.js";
import type { CallOptions } from "./http.js";

/** What happens in the run of a child; the last event is its own `spawn_end`. */
export type SpawnEvent = EventOf<"spawn_session">;

/** The events of a child's run. Those of its own children have a `spawn_path` that leads there. */
export async function* spawnEvents(
  api: Api,
  session: string,
  terms: Body<"spawn_session">,
  options?: CallOptions,
): AsyncGenerator<SpawnEvent, void> {
  const given = { path: { session_id: session }, body: terms };
  for await (const event of api.events("spawn_session", given, options)) {
    yield event;
    if (event.event === "spawn_end" && !event.data.spawn_path?.length) return;
  }
  throw new ConnectionLostError("the stream of the child's run ends too soon");
}

/** How a child's run has ended. Its stream has heartbeats, so it may take any time. */
export async function spawnEnd(events: AsyncIterable<SpawnEvent>): Promise<SpawnEnd> {
  let last: SpawnEnd | undefined;
  for await (const { event, data } of events) if (event === "spawn_end") last = data;
  if (last) return last;
  throw new ConnectionLostError("the stream of the child's run has no end");
}
