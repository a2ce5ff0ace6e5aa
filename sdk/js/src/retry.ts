/** Decides when a request is sent again, and after how long. */

import {
  CapacityExhaustedError,
  ClusterUnavailableError,
  ConnectionLostError,
  EngineUnavailableError,
  NoAnswerError,
  NodeUnavailableError,
  RateLimitedError,
  SandboxUnavailableError,
  UnreachableError,
} from "./errors.js";

const FIRST_SECONDS = 0.1;
const MOST_SECONDS = 5;
const PASSING = [
  UnreachableError,
  ConnectionLostError,
  NoAnswerError,
  SandboxUnavailableError,
  EngineUnavailableError,
  ClusterUnavailableError,
  NodeUnavailableError,
  RateLimitedError,
];

/** Whether the error may be gone a little later. */
export function isPassing(error: unknown): boolean {
  return PASSING.some((kind) => error instanceof kind);
}

/** How often a GET is retried, and the seconds that a new session may wait for capacity. */
export interface RetryPolicy {
  readonly gets: number;
  readonly capacity: number;
}

/**
 * Seconds until the request is sent again; undefined if the error is final.
 *
 * `failures` counts this request's failures, this one included; `waited`: seconds since the first.
 * A request that may have had an effect is never sent again.
 */
export function retryDelay(
  policy: RetryPolicy,
  method: string,
  error: unknown,
  failures: number,
  waited: number,
): number | undefined {
  if (error instanceof CapacityExhaustedError) {
    const delay = Math.max(error.retryAfter ?? 1, FIRST_SECONDS);
    return waited + delay <= policy.capacity ? delay : undefined;
  }
  if (method !== "GET" || failures > policy.gets || !isPassing(error)) return undefined;
  return Math.max(backoff(failures), askedFor(error));
}

/** How long a stream tries to reconnect: `seconds` without any event. */
export class Patience {
  #failures = 0;
  #since: number | undefined;

  constructor(private readonly seconds: number) {}

  /** Something arrived. */
  renew(): void {
    this.#failures = 0;
    this.#since = undefined;
  }

  /** Seconds until the next attempt; throws the error if it has lasted too long. */
  delay(error: unknown): number {
    const now = performance.now() / 1000;
    this.#since ??= now;
    this.#failures += 1;
    const delay = Math.max(backoff(this.#failures), askedFor(error));
    if (now - this.#since + delay > this.seconds) throw error;
    return delay;
  }
}

/** Seconds to wait after so many failures in a row: doubling, with random variation. */
function backoff(failures: number): number {
  const longest = Math.min(MOST_SECONDS, FIRST_SECONDS * 2 ** Math.min(failures - 1, 16));
  return longest * (0.5 + Math.random() / 2);
}

function askedFor(error: unknown): number {
  return error instanceof RateLimitedError ? (error.retryAfter ?? 0) : 0;
}
