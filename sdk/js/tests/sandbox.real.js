/** With a real sandbox: run by itself, not with the other tests. */

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  LimitError,
  NotFoundError,
  PreconditionFailedError,
  RangeNotSatisfiableError,
} from "paddock";
import { paddock, take, withSession } from "./support/clients.js";

const HIGH = { permission_level: "high" };

test("commands, files and shells of a sandbox", async () => {
  await withSession(HIGH, async (session) => {
    await session.files.write("a.txt", "alpha\n", { permissions: 0o640 });
    assert.equal((await session.exec("stat -c %a a.txt")).stdout, "640\n");
    const line = await session.shell("cat a.txt | tr a-z A-Z; echo bad >&2", { merge: true });
    assert.equal(line.stdout, "ALPHA\nbad\n");
    const bytes = new Uint8Array(100_000).map((_, index) => index % 256);
    assert.deepEqual((await session.exec("cat", { stdin: bytes })).stdoutBytes, bytes);
    const late = await session.exec("sleep 60", { timeout: 0.2 });
    assert.equal(late.timed_out, true);
    const seen = [];
    for await (const { event, data } of session.execStream({ shell: "echo é; exit 3" })) {
      seen.push(event === "exit" ? data.exit_code : (data.text ?? event));
    }
    assert.deepEqual(seen, ["start", "é\n", 3]);
    const shell = await session.shells.create("main");
    await shell.run("mkdir -p sub; cd sub; x=7");
    const answer = await shell.run("echo $x $(pwd)");
    assert.match(answer.output, /7 \/workspace\/sub/);
    assert.deepEqual((await session.shells.list()).map(({ name }) => name), ["main"]);
    await shell.close();
    assert.deepEqual(await session.shells.list(), []);
    const kept = await session.setSettings({ keep_alive: 7200 });
    assert.ok(Date.parse(kept.deadlines.idle_at) > Date.now() + 3_600_000);
  });
});

test("a shell of a person", async () => {
  await withSession(HIGH, async (session) => {
    const live = await session.terminals.live();
    live.write("echo $((6 * 7)); exit 5\r");
    let shown = "";
    for await (const frame of live.output()) {
      if (frame instanceof Uint8Array) shown += new TextDecoder().decode(frame);
    }
    assert.match(shown, /42/);
    assert.equal(live.exit.exit_code, 5);
  });
});

test("a directory passes as an archive", async () => {
  await withSession(HIGH, async (session) => {
    await session.shell("mkdir tree && head -c 300000 /dev/urandom > tree/a && ln -s a tree/b");
    const copied = await session.files.writeArchive(await session.files.readArchive("tree"), "copy");
    assert.deepEqual([copied.files, copied.links], [1, 1]);
    assert.equal((await session.exec("cmp tree/a copy/b")).ok, true);
    await assert.rejects(session.files.read("tree/a", { maxBytes: 1000 }), LimitError);
    assert.equal((await session.files.list(".", { depth: 2 })).items.length, 6);
  });
});

test("the record of a session", async () => {
  await withSession({ permission_level: "low" }, async (session) => {
    const { audit } = await session.exec("ls");
    assert.equal((await session.audit.verify(audit)).ok, true);
    await session.close();
    const operations = (await take(session.events())).map(({ operation }) => operation);
    assert.ok(operations.includes("command.start"));
  });
});

test("files are examined, changed and watched", async () => {
  await withSession(HIGH, async ({ files }) => {
    const watch = await files.watch(".", { recursive: true });
    await files.write("a/b.txt", "one\ntwo\n", { parents: true });
    const seen = [];
    for await (const { kind, path } of watch) {
      seen.push(`${kind} ${path}`);
      if (path === "a/b.txt") break;
    }
    assert.ok(seen.includes("create a"), String(seen));
    assert.equal((await watch.next()).done, true);
    const before = await files.stat("a/b.txt");
    assert.deepEqual([before.type, before.size], ["file", 8]);
    assert.equal(await files.readText("a/b.txt", { offset: 4, length: 3 }), "two");
    assert.equal(await files.readText("a/b.txt", { offset: -4 }), "two\n");
    await assert.rejects(files.read("a/b.txt", { offset: 100 }), RangeNotSatisfiableError);
    const diff = "--- a/a/b.txt\n+++ b/a/b.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n";
    assert.equal((await files.patch(diff)).files[0].action, "write");
    assert.equal(await files.readText("a/b.txt"), "one\nthree\n");
    const late = { ifMatch: before.etag };
    await assert.rejects(files.write("a/b.txt", "late", late), PreconditionFailedError);
    await assert.rejects(files.delete("a/b.txt", late), PreconditionFailedError);
    await assert.rejects(files.write("a/b.txt", "", { create: true }), PreconditionFailedError);
    await files.chmod("a/b.txt", 0o700);
    assert.match((await files.stat("a/b.txt")).mode, /700$/);
    assert.equal((await files.copy("a", "c")).files, 1);
    const found = await files.search("thr", { glob: "*.txt" });
    assert.deepEqual(found.items.map(({ path }) => path).sort(), ["a/b.txt", "c/b.txt"]);
    await files.delete("c", { recursive: true });
    assert.deepEqual([await files.exists("c"), await files.exists("a")], [false, true]);
    await assert.rejects(files.stat("c"), NotFoundError);
  });
});

test("cells of code keep their names", async () => {
  await withSession(HIGH, async (session) => {
    await session.runCode("x = 6");
    const cell = await session.runCode("print('é')\nx * 7");
    assert.deepEqual([cell.status, cell.stdout, cell.results[0].text], ["ok", "é\n", "42"]);
    const failed = await session.runCode("1 / 0");
    assert.deepEqual([failed.status, failed.error.name], ["error", "ZeroDivisionError"]);
    const events = (await take(session.runCodeStream("print(x)"))).map(({ event }) => event);
    assert.deepEqual([events[0], events.at(-1)], ["start", "exit"]);
    const other = await session.contexts.create({ name: "other" });
    assert.equal(other.language, "python");
    assert.equal((await session.runCode("x", { context: "other" })).error.name, "NameError");
    await session.contexts.restart("python");
    assert.equal((await session.runCode("x")).error.name, "NameError");
    await session.contexts.remove("other");
    assert.deepEqual((await session.contexts.list()).map(({ name }) => name), ["python"]);
  });
});

test("sessions begin with the files of another one", async () => {
  await withSession({ permission_level: "low" }, async (session) => {
    await session.files.write("note", "kept");
    const taken = await paddock.snapshots.create(session.id, `of-${session.id}`);
    assert.equal((await paddock.snapshots.get(taken.id)).status, "ready");
    const begun = await paddock.sessions.create({
      permission_level: "low",
      from_snapshot: taken.name,
    });
    const forks = await session.fork(2);
    for (const each of [begun, ...forks]) {
      assert.equal((await each.exec("cat note")).stdout, "kept");
      await each.close({ purge: true });
    }
    assert.equal(forks.length, 2);
    assert.equal((await paddock.snapshots.remove(taken.name)).id, taken.id);
  });
});
