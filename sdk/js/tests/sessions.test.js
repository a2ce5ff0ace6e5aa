import assert from "node:assert/strict";
import { test } from "node:test";
import { NotFoundError, Paddock, SessionTerminatedError, UnauthorizedError } from "paddock";
import { paddock, take, withSession } from "./support/clients.js";

test("a session is created, found, changed and ended", async () => {
  const session = await paddock.sessions.create({ id: "one", permission_level: "low" });
  assert.equal(session.info.status, "active");
  assert.ok(session.handle);
  assert.ok(!JSON.stringify(session.info).includes(session.handle));
  const same = await paddock.sessions.ensure("one");
  assert.equal(same.info.created_at, session.info.created_at);
  assert.equal(same.handle, undefined);
  assert.equal((await paddock.sessions.get("one")).info.permission_level, "low");
  assert.equal((await session.pause()).status, "paused");
  assert.equal((await session.resume()).status, "active");
  assert.equal((await session.setSettings({ permission_level: "high" })).permission_level, "high");
  assert.equal((await session.settings()).permission_level, "high");
  assert.equal((await session.budget()).consumed.commands, 0);
  assert.equal((await session.reportUsage({ tokens: 7 })).consumed.tokens, 7);
  assert.equal((await session.interrupt("stop")).status, "active");
  await session.close({ purge: true });
  assert.equal(session.info.status, "completed");
  await assert.rejects(session.exec("ls"), SessionTerminatedError);
  await assert.rejects(paddock.sessions.get("another"), NotFoundError);
});

test("a session ends as a success or a failure", async () => {
  const good = await paddock.sessions.create();
  const bad = await paddock.sessions.create();
  assert.equal((await good.complete()).status, "completed");
  assert.equal((await bad.abort()).status, "aborted");
  const [found] = await paddock.sessions.list({ status: "aborted" });
  assert.equal(found.id, bad.id);
  await paddock.sessions.close(bad.id, { purge: true });
});

test("a list fetches its pages when they are needed", async () => {
  const made = [];
  for (const number of [1, 2, 3, 4, 5]) {
    made.push(await paddock.sessions.create({ labels: { list: "pages" }, work_id: `w${number}` }));
  }
  const label = ["list", "pages"];
  const newest = made.map(({ id }) => id).reverse();
  const requested = [];
  const counting = new Paddock({
    fetch: (...given) => (requested.push(given[0]), fetch(...given)),
  });
  const listed = await counting.sessions.list({ label, limit: 2 });
  assert.deepEqual(listed.map(({ id }) => id), newest);
  assert.equal(requested.length, 3);
  const two = await take(counting.sessions.list({ label, limit: 2 }), 2);
  assert.deepEqual(two.map(({ id }) => id), newest.slice(0, 2));
  assert.equal(requested.length, 4);
  assert.equal((await paddock.sessions.list({ work_id: "w3" })).length, 1);
  for (const session of made) await session.close({ purge: true });
});

test("a handle is a credential for its session", async () => {
  await withSession({}, async (session) => {
    const own = await paddock.sessions.attach(session.id, session.handle);
    assert.equal((await own.exec("ls")).ok, true);
    const old = session.handle;
    const handle = await session.rotateHandle();
    assert.notEqual(handle, old);
    await assert.rejects(paddock.sessions.attach(session.id, old), UnauthorizedError);
    await paddock.sessions.attach(session.id, handle);
  });
});

test("a session is closed by its disposal, once", async (context) => {
  if (!Symbol.asyncDispose) return context.skip("this Node has no asyncDispose");
  const session = await paddock.sessions.create();
  await session[Symbol.asyncDispose]();
  await session[Symbol.asyncDispose]();
  assert.equal((await paddock.sessions.get(session.id)).info.status, "completed");
});

test("a child has at most what its parent has", async () => {
  await withSession({ permission_level: "high" }, async (session) => {
    const child = await session.spawn({ permission_level: "low" });
    assert.equal(child.info.parent, session.id);
    assert.deepEqual((await paddock.sessions.list({ parent: session.id })).map(({ id }) => id), [
      child.id,
    ]);
  });
});

test("the instance tells of itself", async () => {
  assert.equal((await paddock.ready()).status, "ready");
  assert.deepEqual((await paddock.levels()).map(({ name }) => name).slice(0, 3), [
    "low",
    "medium",
    "high",
  ]);
  assert.ok((await paddock.images())[0].name);
  assert.ok(Array.isArray(await paddock.models()));
  assert.ok((await paddock.tools()).length > 0);
  assert.equal((await paddock.call("list_hooks")).items.length, 0);
});
