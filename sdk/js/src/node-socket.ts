/** WebSockets in Node, from its own modules: a refusal is an error with its problem document. */

import { problemOf } from "./answers.js";
import { base64, joined } from "./bytes.js";
import type { Deadline } from "./deadline.js";
import { ConnectionLostError, NotPaddockError, UnreachableError } from "./errors.js";
import { Frames, type Socket } from "./socket.js";

/** The parts of Node's modules that are used here. */
interface Emitter {
  on(event: string, listener: (...given: never[]) => void): void;
}
interface Duplex extends Emitter {
  write(data: Uint8Array): void;
  end(): void;
  destroy(): void;
  setTimeout(milliseconds: number, then: () => void): void;
}
interface Incoming extends Emitter {
  statusCode: number;
  headers: Record<string, string | undefined>;
}
interface Outgoing extends Emitter {
  end(): void;
  destroy(): void;
}
interface Http {
  request(url: URL, options: { headers: Record<string, string> }): Outgoing;
}
interface Crypto {
  randomBytes(count: number): Uint8Array;
  createHash(name: string): { update(text: string): { digest(form: string): string } };
}

const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const MOST_BYTES = 64 * 1024 * 1024;
const CLOSE_MILLISECONDS = 2000;
const CONTINUATION = 0;
const TEXT = 1;
const CLOSE = 8;
const PING = 9;
const PONG = 10;

/** An open socket; undefined outside of Node. */
export async function connectInNode(
  url: string,
  protocols: readonly string[],
  deadline: Deadline,
): Promise<Socket | undefined> {
  const runtime = (globalThis as { process?: { versions?: Record<string, string> } }).process;
  const versions = runtime?.versions ?? {};
  if (!versions["node"] || versions["bun"] || versions["deno"]) return undefined;
  const address = new URL(url.replace(/^ws/, "http"));
  // By variables, so that bundlers for browsers leave them alone.
  const [http, crypto] = [`node:${address.protocol.slice(0, -1)}`, "node:crypto"];
  return await opened(
    address,
    protocols,
    (await import(http)) as Http,
    (await import(crypto)) as Crypto,
    deadline,
  );
}

function opened(
  address: URL,
  protocols: readonly string[],
  http: Http,
  crypto: Crypto,
  deadline: Deadline,
): Promise<Socket> {
  const key = base64(crypto.randomBytes(16));
  const expected = crypto.createHash("sha1").update(key + GUID).digest("base64");
  const what = `GET ${address.pathname}`;
  const request = http.request(address, {
    headers: {
      Connection: "Upgrade",
      Upgrade: "websocket",
      "Sec-WebSocket-Version": "13",
      "Sec-WebSocket-Key": key,
      "Sec-WebSocket-Protocol": protocols.join(", "),
    },
  });
  return new Promise((resolve, reject) => {
    const abort = () => request.destroy();
    deadline.signal.addEventListener("abort", abort, { once: true });
    request.on("error", (error: Error) =>
      reject(new UnreachableError(`no control plane answers: ${error.message}`, { cause: error })),
    );
    request.on("response", (response: Incoming) => {
      const parts: Uint8Array[] = [];
      response.on("data", (part: Uint8Array) => parts.push(part));
      response.on("end", () => {
        const text = new TextDecoder().decode(joined(parts));
        const error = problemOf(response.statusCode, text, what);
        reject(error ?? new NotPaddockError(`the WebSocket answers HTTP ${response.statusCode}`));
      });
    });
    request.on("upgrade", (response: Incoming, duplex: Duplex, head: Uint8Array) => {
      deadline.signal.removeEventListener("abort", abort);
      if (response.headers["sec-websocket-accept"] !== expected) {
        duplex.destroy();
        reject(new NotPaddockError("the server answers no WebSocket"));
        return;
      }
      resolve(new NodeSocket(duplex, head, crypto));
    });
    request.end();
  });
}

/** The client's end of a connection that speaks RFC 6455. */
class NodeSocket implements Socket {
  readonly #frames = new Frames();
  /** Of a message that comes in several frames. */
  readonly #parts: Uint8Array[] = [];
  /** Bytes that have arrived; they are joined once the next frame may be complete. */
  #arrived: Uint8Array[];
  #length: number;
  #needed = 2;
  #isText = false;
  #closed = false;

  constructor(
    private readonly duplex: Duplex,
    head: Uint8Array,
    private readonly crypto: Crypto,
  ) {
    this.#arrived = [head];
    this.#length = head.length;
    duplex.on("data", (data: Uint8Array) => {
      this.#arrived.push(data);
      this.#length += data.length;
      this.#read();
    });
    const lost = () => this.#end("the WebSocket was lost");
    duplex.on("error", lost);
    duplex.on("close", lost);
    this.#read();
  }

  receive(): Promise<Uint8Array | string> {
    return this.#frames.next();
  }

  send(frame: Uint8Array | string): void {
    if (this.#closed) throw new ConnectionLostError("the WebSocket is closed");
    const isText = typeof frame === "string";
    this.#write(isText ? TEXT : 2, isText ? new TextEncoder().encode(frame) : frame);
  }

  close(): void {
    if (!this.#closed) this.#write(CLOSE, new Uint8Array([0x03, 0xe8])); // 1000
    this.#end("the WebSocket is closed");
  }

  #end(reason: string): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#frames.end(new ConnectionLostError(reason));
    this.duplex.end();
    this.duplex.setTimeout(CLOSE_MILLISECONDS, () => this.duplex.destroy());
  }

  /** Takes the frames that are complete. */
  #read(): void {
    if (this.#closed || this.#length < this.#needed) return;
    let bytes = joined(this.#arrived);
    let frame = frameAt(bytes);
    for (; frame && frame.end <= bytes.length; frame = frameAt(bytes)) {
      const data = bytes.slice(frame.start, frame.end);
      bytes = bytes.subarray(frame.end);
      if (frame.code === CLOSE) {
        const status = ((data[0] ?? 0) << 8) | (data[1] ?? 0);
        const reason = new TextDecoder().decode(data.subarray(2));
        return this.#end(reason || `the WebSocket is closed with ${status}`);
      }
      if (frame.code === PING) this.#write(PONG, data);
      else if (frame.code < CLOSE) this.#take(frame.code, frame.isLast, data);
    }
    this.#arrived = [bytes];
    this.#length = bytes.length;
    this.#needed = frame?.end ?? bytes.length + 1;
    if (this.#needed > MOST_BYTES) this.#end("the WebSocket sent a frame that is too large");
  }

  #take(code: number, isLast: boolean, data: Uint8Array): void {
    if (code !== CONTINUATION) this.#isText = code === TEXT;
    this.#parts.push(data);
    if (!isLast) return;
    const whole = joined(this.#parts.splice(0));
    this.#frames.add(this.#isText ? new TextDecoder().decode(whole) : whole);
  }

  #write(code: number, data: Uint8Array): void {
    const length =
      data.length < 126
        ? [0x80 | data.length]
        : data.length < 65536
          ? [0x80 | 126, data.length >> 8, data.length & 0xff]
          : [0x80 | 127, 0, 0, 0, 0, ...[24, 16, 8, 0].map((bits) => (data.length >> bits) & 0xff)];
    const mask = this.crypto.randomBytes(4);
    const masked = data.map((byte, index) => byte ^ mask[index & 3]!);
    this.duplex.write(joined([new Uint8Array([0x80 | code, ...length]), mask, masked]));
  }
}

/** Where the first frame's data begins and ends; undefined until its head is complete. */
function frameAt(bytes: Uint8Array) {
  const short = (bytes[1] ?? 0) & 0x7f;
  const start = short === 126 ? 4 : short === 127 ? 10 : 2;
  if (bytes.length < start) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  const length =
    short === 126 ? view.getUint16(2) : short === 127 ? Number(view.getBigUint64(2)) : short;
  const isLast = (bytes[0]! & 0x80) !== 0;
  return { code: bytes[0]! & 0x0f, isLast, start, end: start + length };
}
