import assert from "node:assert/strict";
import { test } from "node:test";
import { Paddock } from "paddock";
import { paddock, take, withSession } from "./support/clients.js";
import { cutting } from "./support/cutter.js";

test("a session's events come once each, over broken connections, to its end", async () => {
  const proxy = await cutting(process.env.PADDOCK_URL);
  const session = await paddock.sessions.create();
  const watching = await new Paddock({ url: proxy.url }).sessions.get(session.id);
  const seen = [];
  for await (const event of watching.events()) {
    seen.push(event.seq);
    if (seen.length === 1) {
      proxy.cut();
      await session.files.write("a", "b");
      await session.close({ purge: true });
    }
  }
  proxy.close();
  const kept = (await session.audit.events()).map(({ seq }) => seq);
  assert.deepEqual(seen, kept);
  assert.deepEqual(seen, [...seen.keys()].map((index) => index + 1));
});

test("a session's own events end with its handle", async () => {
  const session = await paddock.sessions.create();
  const own = await paddock.sessions.attach(session.id, session.handle);
  const seen = [];
  for await (const { operation } of own.events()) {
    seen.push(operation);
    if (seen.length === 1) await session.close({ purge: true });
  }
  assert.ok(seen.includes("session.terminated"));
});

test("events of all sessions continue after a known one, until they are aborted", async () => {
  await withSession({}, async (session) => {
    await session.files.write("a", "b");
    const [first] = await paddock.search({ session: session.id, limit: 1 });
    const leaving = new AbortController();
    const events = paddock.events({ after: first.id }, { signal: leaving.signal });
    const next = events.next();
    await session.exec("ls");
    assert.equal((await next).value.session_id, session.id);
    leaving.abort(new Error("enough"));
    await assert.rejects(async () => await take(events), /enough/);
  });
});

test("the record is read, counted, exported and verified", async () => {
  await withSession({}, async (session) => {
    const { audit } = await session.exec("ls");
    const starts = await session.audit.events({ operation: "command.start" });
    assert.equal(starts.length, 1);
    const stats = await session.audit.stats();
    assert.ok(stats.decisions.allow > 0);
    const lines = await take(session.audit.export());
    assert.equal(JSON.parse(lines[audit.seq - 1]).seq, audit.seq);
    assert.equal((await session.audit.verify(audit)).ok, true);
    assert.equal((await session.audit.verify({ seq: audit.seq, hash: "0".repeat(64) })).ok, false);
    const past = paddock.sessions.audit(session.id, { incarnation: 1 });
    assert.deepEqual(await past.stats(), await session.audit.stats());
  });
});
