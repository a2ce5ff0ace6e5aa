import assert from "node:assert/strict";
import { test } from "node:test";
import { ConnectionLostError, Paddock, PermissionDeniedError, UnreachableError } from "paddock";
import { paddock, take, withSession } from "./support/clients.js";
import { cutting } from "./support/cutter.js";

const text = (frame) => new TextDecoder().decode(frame);

/** The frames up to one with that text. */
async function until(frames, wanted) {
  let shown = "";
  while (!shown.includes(wanted)) {
    const { value, done } = await frames.next();
    assert.ok(!done, shown);
    if (value instanceof Uint8Array) shown += text(value);
  }
  return shown;
}

test("a shell is opened with a ticket, typed into, resized, watched and ended", async () => {
  await withSession({ permission_level: "high" }, async (session) => {
    const live = await session.terminals.live({ cols: 100, rows: 30 });
    assert.deepEqual([live.info.writable, live.info.cols, live.info.rows], [true, 100, 30]);
    const frames = live.output();
    await until(frames, "$ ");
    // Frames of several forms of length, and a text that needs more than one.
    for (const length of [10, 1000, 100_000]) {
      live.write(`${"x".repeat(length - 3)}é\r`);
      await until(frames, "é\r");
    }
    const watching = await session.terminals.live({ pty: live.info.id, watch: true });
    assert.equal(watching.info.writable, false);
    live.resize(120, 40);
    let told;
    do told = (await frames.next()).value;
    while (!("resize" in told));
    assert.deepEqual(told.resize, { cols: 120, rows: 40 });
    const terminal = await session.terminals.get(live.info.id);
    await terminal.close();
    const last = (await take(frames)).at(-1);
    assert.deepEqual(last.exit, live.exit);
    assert.ok((await take(watching.output())).at(-1).exit);
    assert.equal((await session.terminals.list()).length, 1);
    assert.match(await terminal.recording(), /"version": ?2/);
  });
});

// The standard WebSocket tells no refusal's reason.
const tellsReasons = !process.versions.bun && !process.versions.deno;

test("a refused terminal has its rule, where the runtime tells it", async () => {
  await withSession({ permission_level: "medium" }, async (session) => {
    await assert.rejects(session.terminals.live(), (error) => {
      assert.ok(error instanceof (tellsReasons ? PermissionDeniedError : ConnectionLostError));
      if (tellsReasons) assert.equal(error.rule, "shell-level");
      else assert.match(error.message, /refused/);
      return true;
    });
  });
});

test("a lost terminal is told", async () => {
  const proxy = await cutting(process.env.PADDOCK_URL);
  await withSession({ permission_level: "high" }, async (session) => {
    const cut = await new Paddock({ url: proxy.url }).sessions.get(session.id);
    const live = await cut.terminals.live();
    const frames = live.output();
    await until(frames, "$ ");
    proxy.cut();
    await assert.rejects(async () => await take(frames), ConnectionLostError);
    assert.throws(() => live.write("x"), ConnectionLostError);
    // One that is left tells its reader.
    const left = await session.terminals.live();
    await left[Symbol.asyncDispose]?.();
    left.close();
    await assert.rejects(async () => await take(left.output()), ConnectionLostError);
  });
  proxy.close();
  await assert.rejects(new Paddock({ url: proxy.url }).sessions.create(), UnreachableError);
});

test("a socket of the caller's kind is used", async () => {
  const opened = [];
  class Refused extends EventTarget {
    constructor(url, protocols) {
      super();
      opened.push([url, protocols]);
      setImmediate(() => this.onclose({ reason: "not here" }));
    }
    close() {}
  }
  const client = new Paddock({ WebSocket: Refused });
  await withSession(
    { permission_level: "high" },
    async (session) => await assert.rejects(session.terminals.live(), /not here/),
    client,
  );
  const [[url, protocols]] = opened;
  assert.match(url, /^ws:\/\/.*\/terminal$/);
  assert.equal(protocols[0], "paddock.terminal");
  assert.match(protocols[1], /^ticket\../);
});
