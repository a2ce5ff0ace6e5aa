/** What a host does besides its sessions' work: keys, hooks, memory, archives, decisions. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { NotFoundError, Paddock, PermissionDeniedError, UnauthorizedError } from "paddock";
import { paddock, take, withSession } from "./support/clients.js";
import { json, scripted } from "./support/scripted.js";

test("a key is created, used and revoked", async () => {
  const { key } = await paddock.keys.create({ name: "web", role: "viewer", scope: "all" });
  const listed = await paddock.keys.list();
  assert.equal(listed.find(({ name }) => name === "web").role, "viewer");
  assert.ok(key && !JSON.stringify(listed).includes(key));
  const viewer = new Paddock({ key });
  assert.deepEqual(await viewer.sessions.list(), []);
  await assert.rejects(viewer.sessions.create(), PermissionDeniedError);
  await paddock.keys.revoke("web");
  await assert.rejects(viewer.sessions.create(), UnauthorizedError);
});

test("a hook is added, listed and removed", async () => {
  const target = { url: "http://127.0.0.1:9/hook", events: ["session.created"] };
  const { id, secret } = await paddock.hooks.add(target);
  assert.ok(secret.length >= 16);
  const [listed] = await paddock.hooks.list();
  assert.deepEqual([listed.id, listed.url, listed.events], [id, target.url, target.events]);
  assert.ok(!JSON.stringify(listed).includes(secret));
  await withSession({}, async () => {
    // It can't be delivered, and waits for the next try.
    const [waiting] = await paddock.hooks.deliveries(id, { limit: 1 });
    assert.equal(waiting.hook, id);
    assert.equal((await paddock.hooks.deliveries(id, { status: "undelivered" })).length, 0);
  });
  await assert.rejects(paddock.hooks.retry(id, "none"), NotFoundError);
  await paddock.hooks.remove(id);
  assert.deepEqual(await paddock.hooks.list(), []);
});

test("a key's memory is what its sessions find", async () => {
  const { id } = await paddock.memory.add("Use tabs.", { tags: ["style"], kind: "bootstrap" });
  await paddock.memory.add("Deploy on Mondays.");
  assert.equal((await paddock.memory.list({ limit: 1 })).length, 2);
  await withSession({ permission_level: "high" }, async ({ memory }) => {
    assert.match((await memory.bootstrap()).text, /Use tabs/);
    const found = await memory.search("mondays");
    assert.deepEqual(found.map(({ text }) => text), ["Deploy on Mondays."]);
    await memory.write("The tests take an hour.", { tags: ["tests"] });
    assert.equal((await memory.search()).length, 3);
  });
  await paddock.memory.change(id, "Use spaces.", { kind: "bootstrap" });
  const [changed] = (await paddock.memory.list()).filter((each) => each.id === id);
  assert.equal(changed.text, "Use spaces.");
  for (const each of await paddock.memory.list()) await paddock.memory.remove(each.id);
  assert.deepEqual(await paddock.memory.list(), []);
});

test("a volume is created, found and removed", async () => {
  const made = await paddock.volumes.create({ name: "data", size_bytes: 16 * 1024 ** 2 });
  assert.deepEqual([made.name, made.size_bytes], ["data", 16 * 1024 ** 2]);
  assert.deepEqual((await paddock.volumes.list()).map(({ name }) => name), ["data"]);
  assert.deepEqual((await paddock.volumes.get("data")).sessions, []);
  await paddock.volumes.remove("data");
  await assert.rejects(paddock.volumes.get("data"), NotFoundError);
});

test("templates are listed and built", async () => {
  assert.deepEqual(await paddock.templates.list(), []);
  await assert.rejects(paddock.templates.get("none"), NotFoundError);
  await assert.rejects(paddock.templates.build("none"), NotFoundError);
});

test("chains are archived, and rules explained", async () => {
  const done = await paddock.archives.make({ older_than: 86_400 });
  assert.deepEqual([done.items, done.more], [[], false]);
  assert.deepEqual(await paddock.archives.list(), []);
  const refused = await paddock.explain({ level: "low", command: "curl example.org" });
  assert.equal(refused.verdict, "deny");
  assert.ok((await paddock.sessionPolicies()).some(({ name }) => name));
});

test("a session moves as one archive", async () => {
  const session = await paddock.sessions.create({ permission_level: "low" });
  await session.setEpisode("first");
  const { deadlines } = await session.keepAlive(7200);
  assert.ok(Date.parse(deadlines.idle_at) > Date.now() + 3_600_000);
  assert.equal((await session.setTimeout({ idle: 60 })).idle_timeout, 60);
  const parts = await take(await piecesOf(await session.snapshot()));
  assert.ok(parts.length > 0);
  // It is known here, so nothing is made of it.
  await assert.rejects(paddock.restore(new Blob(parts)), { code: "conflict" });
  await paddock.sessions.pause(session.id);
  assert.equal((await session.refresh()).status, "paused");
  assert.equal((await paddock.sessions.abort(session.id)).status, "aborted");
  await session.close({ purge: true });
});

test("a pack is all that a session reads", async () => {
  const entry = (path, content) => {
    const content_hash = `sha256:${createHash("sha256").update(content).digest("hex")}`;
    return { path, content_hash };
  };
  const tool_allowlist = ["Read", "ListFiles"];
  const pack = { manifest_id: "fix", entries: [entry("notes", "read me\n")], tool_allowlist };
  const terms = { permission_level: "medium", consume: pack, work_id: "packed" };
  const session = await paddock.sessions.create(terms);
  assert.equal(new TextDecoder().decode(await session.consume.read("notes")), "read me\n");
  await assert.rejects(session.consume.read("plan"), PermissionDeniedError);
  await take(session.events());
  assert.equal((await paddock.sessions.consume(session.id).get()).misses.length, 1);
  const consume = { ...pack, entries: [...pack.entries, entry("plan", "next\n")] };
  const refined = await paddock.sessions.refine(session.id, { consume });
  assert.equal(new TextDecoder().decode(await refined.consume.read("plan")), "next\n");
  await refined.close({ purge: true });
});

test("approvals are watched, each once", async () => {
  const first = { id: "apr-1", status: "pending" };
  const second = { id: "apr-2", status: "pending" };
  let lists = 0;
  let stream;
  const server = await scripted((request, response) => {
    if (request.url.startsWith("/api/events")) {
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      response.write(": alive\n\n");
      stream = response;
      return;
    }
    lists += 1;
    json(response, { items: lists === 1 ? [first] : [second, first], next: null });
  });
  const client = new Paddock({ url: server.url });
  const seen = [];
  for await (const { id } of client.approvals.watch()) {
    seen.push(id);
    if (id === "apr-2") break;
    const data = JSON.stringify({ operation: "approval.request" });
    stream.write(`id: 1\nevent: approval.request\ndata: ${data}\n\n`);
  }
  assert.deepEqual(seen, ["apr-1", "apr-2"]);
  server.close();
});

async function* piecesOf(stream) {
  const reader = stream.getReader();
  for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
    yield value;
  }
}
