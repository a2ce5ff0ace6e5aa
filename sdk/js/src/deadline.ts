/** Limits of time, and the caller's own signal. */

const MOST_MILLISECONDS = 2 ** 31 - 1;

/** Ends a request when its caller aborts it, or when nothing has come for some seconds. */
export class Deadline {
  /** For `fetch`. */
  readonly signal: AbortSignal;
  /** Whether the time is over. */
  passed = false;
  readonly #controller = new AbortController();
  readonly #abort = () => this.#controller.abort(this.outer?.reason);
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** Throws the reason of `outer` if it is aborted already. */
  constructor(
    readonly seconds: number,
    readonly outer?: AbortSignal,
  ) {
    outer?.throwIfAborted();
    this.signal = this.#controller.signal;
    outer?.addEventListener("abort", this.#abort, { once: true });
    this.renew();
  }

  /** Something has come: the time begins anew. */
  renew(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(
      () => {
        this.passed = true;
        this.#controller.abort();
      },
      Math.min(this.seconds * 1000, MOST_MILLISECONDS),
    );
  }

  /** The request is over: nothing ends it any more. */
  end(): void {
    clearTimeout(this.#timer);
    this.outer?.removeEventListener("abort", this.#abort);
  }

  /** The request is not needed any more. */
  abandon(): void {
    this.end();
    this.#controller.abort();
  }
}

/** Waits; throws the signal's reason once it is aborted. */
export function pause(seconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(signal.reason as Error);
      return;
    }
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, seconds * 1000);
    signal?.addEventListener("abort", abort, { once: true });
  });
}
