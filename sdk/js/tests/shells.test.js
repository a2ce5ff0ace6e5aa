import assert from "node:assert/strict";
import { test } from "node:test";
import { BusyError, ConflictError } from "paddock";
import { withSession } from "./support/clients.js";

test("a shell runs commands and drives their programs", async () => {
  await withSession({ permission_level: "high" }, async (session) => {
    const shell = await session.shells.create("main", { env: { OWN: "1" } });
    const answer = await shell.run("make");
    assert.deepEqual([answer.status, answer.output], ["finished", "ran make\n"]);
    assert.equal((await shell.run("return 3")).exit_code, 3);
    assert.equal((await shell.run("wrong")).status, "syntax_error");
    const asked = await shell.run("ask name");
    assert.deepEqual([asked.status, asked.running], ["waiting", true]);
    await assert.rejects(shell.run("make"), BusyError);
    assert.equal((await shell.input("bob\n")).output, "got bob\n");
    const seen = await shell.run("hang one two", { expect: "two" });
    assert.equal(seen.status, "matched");
    assert.equal((await shell.interrupt()).name, "main");
    while ((await shell.refresh()).running);
    assert.equal((await shell.run("hang", { timeout: 0.1 })).status, "timed_out");
    assert.deepEqual((await session.shells.list()).map(({ name }) => name), ["main"]);
    await shell.close();
    await assert.rejects(session.shells.get("main"), ConflictError);
  });
});
