import assert from "node:assert/strict";
import { test } from "node:test";
import { ConnectionLostError, Paddock, PermissionDeniedError, ValidationError } from "paddock";
import { paddock, take, withSession } from "./support/clients.js";
import { cutting } from "./support/cutter.js";

const HIGH = { permission_level: "high" };

test("a command's end is its result", async () => {
  await withSession(HIGH, async (session) => {
    const done = await session.exec("greet you");
    assert.deepEqual([done.ok, done.stdout, done.stderr], [true, "hello\n", ""]);
    assert.ok(done.audit.seq > 0);
    const failed = await session.exec(["fail"], { cwd: ".", env: { A: "b" }, timeout: 5 });
    assert.deepEqual([failed.ok, failed.exit_code, failed.stderr], [false, 3, "bad\n"]);
    const raw = await session.exec("raw");
    assert.deepEqual([...raw.stdoutBytes], [0xff, 0x00, 0xfe]);
    assert.equal(raw.stdout, "\ufffd\0\ufffd");
    await assert.rejects(session.exec(""), (error) => {
      assert.ok(error instanceof ValidationError);
      assert.equal(error.problem.field, "command");
      return true;
    });
  });
});

test("a refusal has its rule, and what to do instead", async () => {
  await withSession({ permission_level: "low" }, async (session) => {
    await assert.rejects(session.exec("curl https://example.org"), (error) => {
      assert.ok(error instanceof PermissionDeniedError);
      assert.deepEqual([error.status, error.code], [403, "permission_denied"]);
      assert.equal(error.rule, "command-allowlist");
      assert.match(error.remedy, /level/);
      assert.ok(error.requestId);
      assert.equal(error.name, "PermissionDeniedError");
      return true;
    });
    const explained = await session.explain({ command: "curl https://example.org" });
    assert.equal(explained.verdict, "deny");
  });
});

test("a command's events come as they happen", async () => {
  await withSession(HIGH, async (session) => {
    const seen = [];
    for await (const { event, data } of session.execStream("build", { stdin_open: true })) {
      seen.push(event === "stdout" ? data.text : event);
      if (event === "stdout") {
        const [running] = (await session.processes.list()).filter((each) => !each.exit);
        await session.processes.stdin(running.command_id, "go\n", { close: true });
      }
    }
    assert.deepEqual(seen, ["start", "one\n", "exit"]);
  });
});

test("a stream continues over a broken connection, without loss or repetition", async () => {
  const proxy = await cutting(process.env.PADDOCK_URL);
  const client = new Paddock({ url: proxy.url });
  await withSession(HIGH, async (session) => {
    const seen = [];
    let id;
    for await (const { event, data } of session.execStream("build")) {
      if (event === "start") id = data.command_id;
      seen.push(event === "stdout" ? data.text : event);
      if (event === "stdout") {
        proxy.cut();
        await paddock.call("signal_process", {
          path: { session_id: session.id, command_id: id },
          body: { signal: "TERM" },
        });
      }
    }
    assert.deepEqual(seen, ["start", "one\n", "exit"]);
    // Without it, the command ends with its connection.
    const events = session.execStream("build", { resume: false });
    await assert.rejects(async () => {
      for await (const { event } of events) if (event === "stdout") proxy.cut();
    }, ConnectionLostError);
  }, client);
  proxy.close();
});

test("leaving a stream early kills its command", async () => {
  await withSession(HIGH, async (session) => {
    const [start] = await take(session.execStream("build"), 1);
    const exit = await session.processes.wait(start.data.command_id);
    assert.equal(exit.exit_code, 137);
  });
});

test("an aborted signal ends a foreground command", async () => {
  await withSession(HIGH, async (session) => {
    const leaving = new AbortController();
    const running = session.exec("build", {}, { signal: leaving.signal });
    let found;
    while (!found) [found] = await session.processes.list();
    leaving.abort(new Error("changed my mind"));
    await assert.rejects(running, /changed my mind/);
    const exit = await session.processes.wait(found.command_id);
    assert.equal(exit.reason, "client_gone");
    await assert.rejects(session.exec("ls", {}, { signal: leaving.signal }), /changed my mind/);
  });
});

test("a background command is followed, fed and signalled", async () => {
  await withSession(HIGH, async (session) => {
    const { command_id } = await session.processes.start(["build"], { stdin_open: true });
    await session.processes.stdin(command_id, new Uint8Array([0, 255]));
    const now = await session.processes.get(command_id);
    assert.deepEqual([now.status, now.output[0].text, now.next], ["running", "one\n", 4]);
    const [start] = await take(session.processes.follow(command_id, 2), 1);
    assert.equal(start.event, "start");
    await session.processes.signal(command_id, "TERM");
    assert.equal((await session.processes.wait(command_id)).exit_code, 143);
    assert.equal(new TextDecoder().decode(await session.processes.output(command_id)), "one\n");
    const events = await take(session.processes.follow(command_id, 2));
    assert.deepEqual(events.map(({ event, data }) => data.text ?? event), ["start", "e\n", "exit"]);
  });
});
