/** Lists that come in pages. */

interface Page<T> {
  readonly items: readonly T[];
  readonly next: string | number | null;
}

/** A list: `for await` fetches a page when it is needed, `await` fetches all of them. */
export class Pages<T> implements AsyncIterable<T>, PromiseLike<T[]> {
  /** `page` fetches the page at a cursor; undefined: the first one. */
  constructor(private readonly page: (cursor?: string) => Promise<Page<T>>) {}

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void> {
    let cursor: string | undefined;
    do {
      const { items, next } = await this.page(cursor);
      yield* items;
      cursor = next === null ? undefined : String(next);
    } while (cursor !== undefined);
  }

  then<A = T[], B = never>(
    fulfilled?: ((items: T[]) => A | PromiseLike<A>) | null,
    rejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.#all().then(fulfilled, rejected);
  }

  async #all(): Promise<T[]> {
    const found: T[] = [];
    for await (const item of this) found.push(item);
    return found;
  }
}
