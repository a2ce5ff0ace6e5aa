/** WebSockets to the control plane. */

import { Deadline } from "./deadline.js";
import { ConnectionLostError, NoAnswerError, PaddockError } from "./errors.js";
import type { CallOptions } from "./http.js";
import { connectInNode } from "./node-socket.js";

/** As in the standard. */
const OPEN = 1;

/** An open WebSocket: bytes, and JSON as text. */
export interface Socket {
  /** The next frame. Throws `ConnectionLostError` once it is closed, with the reason. */
  receive(): Promise<Uint8Array | string>;
  send(frame: Uint8Array | string): void;
  close(): void;
}

/** Opens a socket. `WebSocket` is used instead of the runtime's own. */
export async function connect(
  url: string,
  protocols: readonly string[],
  options: CallOptions & { WebSocket: typeof WebSocket | undefined; timeout: number },
): Promise<Socket> {
  const deadline = new Deadline(options.timeout, options.signal);
  try {
    // Node's own tells no refusal's reason, and before version 22 there is none.
    const inNode = options.WebSocket ? undefined : await connectInNode(url, protocols, deadline);
    return inNode ?? (await standard(options.WebSocket ?? WebSocket, url, protocols, deadline));
  } catch (error) {
    if (options.signal?.aborted) throw options.signal.reason;
    if (deadline.passed) throw new NoAnswerError(`${url}: no answer in time`, { cause: error });
    throw error;
  } finally {
    deadline.end();
  }
}

function standard(
  kind: typeof WebSocket,
  url: string,
  protocols: readonly string[],
  deadline: Deadline,
): Promise<Socket> {
  const socket = new kind(url, [...protocols]);
  socket.binaryType = "arraybuffer";
  const frames = new Frames();
  socket.onmessage = ({ data }) => frames.add(typeof data === "string" ? data : new Uint8Array(data));
  return new Promise((resolve, reject) => {
    const abort = () => {
      socket.close();
      reject(new PaddockError("the WebSocket was not opened"));
    };
    deadline.signal.addEventListener("abort", abort, { once: true });
    socket.onopen = () => {
      deadline.signal.removeEventListener("abort", abort);
      resolve({
        receive: () => frames.next(),
        send: (frame) => {
          // The standard one drops what is sent too late.
          if (socket.readyState !== OPEN) throw new ConnectionLostError("the WebSocket is closed");
          socket.send(frame as Uint8Array<ArrayBuffer> | string);
        },
        close: () => {
          frames.end(new ConnectionLostError("the WebSocket is closed"));
          socket.close(1000);
        },
      });
    };
    socket.onclose = ({ reason }) => {
      const error = new ConnectionLostError(reason || "the WebSocket was refused, or was lost");
      frames.end(error);
      reject(error);
    };
  });
}

/** Frames that have arrived, and whoever waits for the next one. */
export class Frames {
  readonly #arrived: (Uint8Array | string)[] = [];
  #waiting: { resolve: (frame: Uint8Array | string) => void; reject: (error: Error) => void }[] = [];
  #ended: Error | undefined;

  add(frame: Uint8Array | string): void {
    const first = this.#waiting.shift();
    if (first) first.resolve(frame);
    else this.#arrived.push(frame);
  }

  /** No more frames come. */
  end(error: Error): void {
    this.#ended ??= error;
    for (const each of this.#waiting.splice(0)) each.reject(this.#ended);
  }

  next(): Promise<Uint8Array | string> {
    const frame = this.#arrived.shift();
    if (frame !== undefined) return Promise.resolve(frame);
    if (this.#ended) return Promise.reject(this.#ended);
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }
}
