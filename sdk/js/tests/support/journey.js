/** What every runtime must be able to do, browsers too: standard JavaScript, and the client. */

import { ConnectionLostError, PermissionDeniedError, UnreachableError } from "paddock";

const HIGH = { permission_level: "high" };

/** Works in a session of that client; what each step found. */
export async function journey(paddock) {
  const session = await paddock.sessions.create(HIGH);
  try {
    const found = {};
    for (const [name, step] of Object.entries(STEPS)) {
      try {
        found[name] = await step(session, paddock);
      } catch (error) {
        found[name] = `${error?.name}: ${error?.message}`;
      }
    }
    return found;
  } finally {
    await session.close({ purge: true });
  }
}

/** Whether the connection failed, and not the client: a browser's network may change. */
export const isCut = (error) =>
  error instanceof ConnectionLostError || error instanceof UnreachableError;

/** The steps, and what they find. */
export const WANTED = {
  exec: ["one\n", "two\n", 3],
  bytes: [true, 256],
  streamed: ["start", "é\n", "exit 0"],
  left: "ended",
  shell: ["/workspace/sub", "7"],
  code: ["42", "ZeroDivisionError"],
  files: ["streamed", "mid", true, "NotFoundError"],
  archive: [2, "alpha"],
  watch: "create new.txt",
  events: ["command.start", "command.exit"],
  terminal: ["42", 5],
  refused: ["PermissionDeniedError", "command-allowlist", true],
  aborted: ["TimeoutError", "enough"],
  listed: true,
};

const STEPS = {
  async exec(session) {
    const done = await session.exec(["sh", "-c", "echo one; echo two >&2; exit 3"]);
    return [done.stdout, done.stderr, done.exit_code];
  },

  async bytes(session) {
    const sent = new Uint8Array(256).map((_, index) => index);
    const { stdoutBytes } = await session.exec("cat", { stdin: sent });
    return [stdoutBytes.every((each, index) => each === index), stdoutBytes.length];
  },

  async streamed(session) {
    const seen = [];
    for await (const { event, data } of session.execStream({ shell: "echo é" })) {
      seen.push(event === "exit" ? `exit ${data.exit_code}` : (data.text ?? event));
    }
    return seen;
  },

  // Leaving a stream kills its command.
  async left(session) {
    let id;
    for await (const { event, data } of session.execStream("sleep 1000")) {
      if (event === "start") id = data.command_id;
      break;
    }
    return (await session.processes.wait(id)).signal ? "ended" : "not signalled";
  },

  async shell(session) {
    const shell = await session.shells.create("main");
    await shell.run("mkdir sub; cd sub; x=7");
    const { output } = await shell.run("pwd; echo $x");
    await shell.close();
    return output.trim().split(/\s+/);
  },

  async code(session) {
    await session.runCode("x = 6");
    const cell = await session.runCode("x * 7");
    return [cell.results[0].text, (await session.runCode("1 / 0")).error.name];
  },

  async files({ files }) {
    const text = new TextEncoder().encode("streamed");
    const stream = new ReadableStream({
      start(controller) {
        controller.enqueue(text.subarray(0, 3));
        controller.enqueue(text.subarray(3));
        controller.close();
      },
    });
    await files.write("a.txt", stream);
    const whole = await files.readText("a.txt");
    await files.write("b.txt", new Blob(["a middle"]));
    const part = await files.readText("b.txt", { offset: 2, length: 3 });
    const { etag } = await files.stat("a.txt");
    await files.write("a.txt", "changed", { ifMatch: etag });
    const missing = await files.stat("none").catch((error) => error.name);
    return [whole, part, (await files.readText("a.txt")) === "changed", missing];
  },

  async archive({ files }) {
    await files.write("tree/a", "alpha", { parents: true });
    await files.write("tree/b", "beta");
    const copied = await files.writeArchive(await files.readArchive("tree"), "copy");
    return [copied.files, await files.readText("copy/a")];
  },

  async watch({ files }) {
    await files.mkdir("watched");
    const watch = await files.watch("watched");
    await files.write("watched/new.txt", "new");
    for await (const { kind, path } of watch) return `${kind} ${path.split("/").at(-1)}`;
  },

  async events(session) {
    const wanted = ["command.start", "command.exit"];
    const seen = [];
    for await (const { operation } of session.events()) {
      if (operation === wanted[seen.length]) seen.push(operation);
      if (seen.length === wanted.length) return seen;
    }
  },

  async terminal(session) {
    const live = await session.terminals.live();
    live.write("echo $((6 * 7)); exit 5\r");
    let shown = "";
    for await (const frame of live.output()) {
      if (frame instanceof Uint8Array) shown += new TextDecoder().decode(frame);
    }
    return [/\r(42)\r\n/.exec(shown)?.[1] ?? shown, live.exit.exit_code];
  },

  async refused(session, paddock) {
    const low = await paddock.sessions.create({ permission_level: "low" });
    try {
      await low.exec("curl https://example.org");
    } catch (error) {
      if (!(error instanceof PermissionDeniedError)) throw error;
      return [error.name, error.rule, error.remedy.length > 0];
    } finally {
      await low.close({ purge: true });
    }
  },

  async aborted(session) {
    const late = { signal: AbortSignal.timeout(50) };
    const first = await session.exec("sleep 1000", {}, late).catch((error) => error.name);
    const controller = new AbortController();
    const running = session.exec("sleep 1000", {}, { signal: controller.signal });
    controller.abort("enough");
    return [first, await running.catch((reason) => reason)];
  },

  async listed(session, paddock) {
    for await (const each of paddock.sessions.list({ limit: 1 })) {
      if (each.id === session.id) return true;
    }
    return false;
  },
};
