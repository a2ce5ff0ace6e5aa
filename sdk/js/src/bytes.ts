/** Bytes: contents to send, and text or base64 of the API. */

import { LimitError } from "./errors.js";

/** What can be sent as the content of a file. Text is encoded as UTF-8. */
export type Content =
  | string
  | Uint8Array
  | ArrayBuffer
  | Blob
  | ReadableStream<Uint8Array>
  | AsyncIterable<Uint8Array>;

/** Sends a content by `send`. Throws the error of its source, if that has one. */
export async function sent<T>(
  content: Content,
  send: (body: BodyInit) => Promise<T>,
): Promise<T> {
  if (typeof content === "string") return await send(new TextEncoder().encode(content));
  const isPlain = content instanceof ArrayBuffer || ArrayBuffer.isView(content);
  if (isPlain || content instanceof Blob) return await send(content as BodyInit);
  let failure: { readonly error: unknown } | undefined;
  async function* heeded(source: AsyncIterable<Uint8Array>) {
    try {
      yield* source;
    } catch (error) {
      failure = { error };
      throw error;
    }
  }
  const source = content instanceof ReadableStream ? piecesOf(content) : content;
  try {
    const stream = streamOf(heeded(source));
    return await send(hasStreamedRequests() ? stream : await new Response(stream).blob());
  } catch (error) {
    throw failure ? failure.error : error;
  }
}

/** Browsers send no stream over HTTP/1.1: they keep its content first, on disk if it is large. */
function hasStreamedRequests(): boolean {
  const scope = globalThis as { process?: { versions?: Record<string, string> } };
  return scope.process?.versions?.["node"] !== undefined;
}

/** The pieces of a standard stream, which not every runtime can iterate. */
async function* piecesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array, void> {
  const reader = stream.getReader();
  try {
    for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
      if (value) yield value;
    }
  } finally {
    await reader.cancel();
  }
}

/** The pieces as a standard stream. */
export function streamOf(pieces: AsyncIterator<Uint8Array>): ReadableStream<Uint8Array> {
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { done, value } = await pieces.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      async cancel() {
        await pieces.return?.();
      },
    },
    { highWaterMark: 0 },
  );
}

/** All pieces as one array. Throws `LimitError` if they have more than `most` bytes. */
export async function collected(
  pieces: AsyncIterable<Uint8Array>,
  most: number,
  what: string,
): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let length = 0;
  for await (const piece of pieces) {
    length += piece.length;
    if (length > most) throw new LimitError(`${what} has more than ${most} bytes`);
    parts.push(piece);
  }
  return joined(parts);
}

/** The parts as one array. */
export function joined(parts: readonly Uint8Array[]): Uint8Array {
  if (parts.length === 1) return parts[0]!;
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Text as it is, bytes as base64, as members of a body. */
export function inputMembers<K extends string>(
  name: K,
  data: string | Uint8Array | undefined,
): { [key in K | `${K}_base64`]?: string } {
  const members: Record<string, string> = {};
  if (typeof data === "string") members[name] = data;
  else if (data) members[`${name}_base64`] = base64(data);
  return members as { [key in K | `${K}_base64`]?: string };
}

/** Bytes as base64. */
export function base64(data: Uint8Array): string {
  let text = "";
  // In parts, because a call takes no more arguments.
  for (let at = 0; at < data.length; at += 0x8000) {
    text += String.fromCharCode(...data.subarray(at, at + 0x8000));
  }
  return btoa(text);
}

/** The bytes that a command printed: of its text, unless they are given as base64. */
export function printed(text: string, encoded: string | null | undefined): Uint8Array {
  if (encoded === undefined || encoded === null) return new TextEncoder().encode(text);
  return Uint8Array.from(atob(encoded), (each) => each.charCodeAt(0));
}
