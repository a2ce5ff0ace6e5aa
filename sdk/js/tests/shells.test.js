import assert from "node:assert/strict";
import { test } from "node:test";
import { ConflictError } from "paddock";
import { withSession } from "./support/clients.js";

test("a shell keeps its state between commands", async () => {
  await withSession({ permission_level: "high" }, async (session) => {
    const shell = await session.shells.create("main", { env: { OWN: "1" } });
    await shell.run("cd /tmp; f() { echo $OWN $x; }; x=2");
    const answer = await shell.run("pwd; f; (exit 3)");
    assert.deepEqual([answer.status, answer.exit_code], ["finished", 3]);
    assert.equal(answer.output, "/tmp\n1 2\n");
    const asked = await shell.run("read name; echo hello $name");
    assert.equal(asked.status, "waiting");
    const ran = await shell.input("bob\n");
    assert.equal(ran.output, "hello bob\n");
    assert.equal((await shell.run("sleep 60", { timeout: 0.3 })).status, "timed_out");
    assert.equal((await shell.interrupt()).running, false);
    assert.deepEqual((await session.shells.list()).map(({ name }) => name), ["main"]);
    await shell.close();
    await assert.rejects(session.shells.get("main"), ConflictError);
  });
});
