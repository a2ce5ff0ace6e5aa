/** `await using`, where the runtime has it. */

/** What `await using` closes at its end. */
export abstract class Disposable implements AsyncDisposable {
  declare readonly [Symbol.asyncDispose]: () => Promise<void>;

  static {
    // Node before 18.18 has no such symbol.
    if ((Symbol as { asyncDispose?: symbol }).asyncDispose) {
      Object.defineProperty(this.prototype, Symbol.asyncDispose, {
        value(this: Disposable) {
          return this.leave();
        },
      });
    }
  }

  /** Closes it, unless it is closed already. */
  protected abstract leave(): Promise<void>;
}
