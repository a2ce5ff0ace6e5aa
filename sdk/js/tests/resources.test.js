import assert from "node:assert/strict";
import { test } from "node:test";
import { ConnectionLostError, NotFoundError, PermissionDeniedError, ValidationError } from "paddock";
import { paddock, take, withSession } from "./support/clients.js";

test("a model works in a session", async () => {
  await withSession({}, async (session) => {
    assert.equal(await session.queue("before"), 1);
    const run = await session.send(["one", "two"], { model: "small", max_ticks: 3 });
    assert.deepEqual([run.text, run.outcome.tag], ["done", "ok"]);
    const events = await take(session.sendStream("three"));
    assert.deepEqual([events[0].event, events.at(-1).event], ["start", "end"]);
    assert.equal((await session.render({ system: "Be brief." })).text, "done");
    const said = (await session.timeline()).items.map(({ role, content }) => [role, content]);
    assert.deepEqual(said.slice(0, 3).map(([, content]) => content), ["before", "one", "two"]);
    assert.equal((await session.timeline({ after: 1, limit: 1 })).items.length, 1);
    const [number] = (await session.turns.list()).map((each) => each.turn_number);
    assert.equal((await session.turns.get(number)).turn_number, number);
  });
});

test("a WebSocket takes one message after another", async () => {
  await withSession({}, async (session) => {
    const socket = await session.runSocket();
    try {
      const events = await take(socket.run("one"));
      assert.deepEqual([events[0].event, events.at(-1).event], ["start", "end"]);
      // What is left of a run that is not read to its end is skipped.
      await take(socket.run("two"), 1);
      assert.equal((await take(socket.run("three", { model: "small" }))).at(-1).data.text, "done");
      await assert.rejects(take(socket.run("four", { model: "none" })), ValidationError);
    } finally {
      socket.close();
    }
    await assert.rejects(take(socket.run("five")), ConnectionLostError);
  });
});

test("a model works in a child", async () => {
  await withSession({}, async (session) => {
    const messages = [{ role: "user", content: "one" }];
    const done = await session.spawnRun({ messages, label: "helper" });
    assert.deepEqual([done.text, done.is_error, done.label], ["done", false, "helper"]);
    const events = await take(session.spawnStream({ messages }));
    assert.deepEqual([events[0].event, events.at(-1).event], ["spawn_start", "spawn_end"]);
  });
});

test("a turn is a program of operations", async () => {
  await withSession({}, async (session) => {
    const turn = await session.turns.run({ code: "(+ 1 2)" });
    assert.equal(turn.outcome.tag, "ok");
    const events = await take(session.turns.stream({ code: "(+ 1 2)" }));
    assert.deepEqual(events.map(({ event }) => event).at(-1), "end");
  });
});

test("secrets are set, listed without their values, and removed", async () => {
  const secret = { value: "sk-0123456789", hosts: ["api.example.org"] };
  assert.deepEqual((await paddock.secrets.set("model", secret)).hosts, secret.hosts);
  const [listed] = await paddock.secrets.list();
  assert.ok(!JSON.stringify(listed).includes(secret.value));
  await paddock.secrets.remove("model");
  assert.deepEqual(await paddock.secrets.list(), []);
  await withSession({}, async (session) => {
    await session.secrets.set("own", secret);
    assert.deepEqual((await session.secrets.list()).map(({ name }) => name), ["own"]);
    await session.secrets.remove("own");
    await assert.rejects(session.secrets.remove("own"), NotFoundError);
  });
});

test("ports, proposals, ways out and approvals are asked for", async () => {
  await withSession({}, async (session) => {
    assert.deepEqual(await session.ports.list(), []);
    await assert.rejects(session.ports.close(8000), NotFoundError);
    assert.deepEqual(await session.proposals.list(), []);
    assert.equal((await session.proposals.rollback()).write, 0);
    assert.equal((await session.egress.get()).revision, 0);
    assert.deepEqual(await paddock.approvals.list({ status: "pending" }), []);
    await assert.rejects(paddock.approvals.deny("apr-0123456789abcdef", "no"), NotFoundError);
    assert.ok((await session.tools()).length > 0);
    await assert.rejects(session.runTool("none"), NotFoundError);
    const own = await paddock.sessions.attach(session.id, session.handle);
    await assert.rejects(own.ports.open(8000), PermissionDeniedError);
  });
});
