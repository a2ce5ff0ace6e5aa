// What programs do with E2B's SDK for JavaScript outside of sandboxes.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";

// The SDK is installed in the directory in which this runs.
const found = createRequire(pathToFileURL(`${process.cwd()}/`)).resolve("e2b");
const { Sandbox, AuthenticationError, SandboxNotFoundError, Template, Volume } = await import(
  pathToFileURL(found)
);

const url = `${process.env.PADDOCK_URL}/compat/e2b`;
process.env.E2B_API_URL = url;
process.env.E2B_SANDBOX_URL = url;
process.env.E2B_API_KEY = process.env.PADDOCK_KEY;

const timeoutMs = 60_000;
let sandbox;

before(async () => {
  sandbox = await Sandbox.create("high", { timeoutMs });
});

after(async () => {
  await sandbox?.kill();
});

const left = (moment) => (moment.getTime() - Date.now()) / 1000;

async function ids(query) {
  const pages = Sandbox.list({ query, limit: 2 });
  const all = [];
  while (pages.hasNext) all.push(...(await pages.nextItems()).map((each) => each.sandboxId));
  return all;
}

test("create, use, kill", async () => {
  const other = await Sandbox.create({ timeoutMs });
  assert.equal((await other.commands.run("echo out")).stdout, "out\n");
  assert.equal(await other.kill(), true);
  assert.equal(await other.isRunning(), false);
  assert.equal(await Sandbox.kill(other.sandboxId), false);
});

test("info", async () => {
  const info = await sandbox.getInfo();
  assert.equal(info.sandboxId, sandbox.sandboxId);
  assert.equal(info.templateId, "high");
  assert.equal(info.state, "running");
  assert.ok(left(info.endAt) > 0);
});

test("metadata is free text, and sandboxes are found by it", async () => {
  const metadata = { user: "Anna Lindqvist & Söner", note: "two\nlines = 100 %" };
  const other = await Sandbox.create("high", { timeoutMs, metadata });
  try {
    assert.deepEqual((await other.getInfo()).metadata, metadata);
    assert.deepEqual(await ids({ metadata }), [other.sandboxId]);
    assert.deepEqual(await ids({ metadata: { user: "nobody" } }), []);
  } finally {
    await other.kill();
  }
});

test("environment", async () => {
  const other = await Sandbox.create("high", { timeoutMs, envs: { FOO: "bar" } });
  try {
    assert.equal((await other.commands.run("echo $FOO")).stdout, "bar\n");
  } finally {
    await other.kill();
  }
});

test("files and home", async () => {
  await sandbox.files.write("a.txt", "text");
  assert.equal(await sandbox.files.read("/home/user/a.txt"), "text");
});

test("time-out longer and shorter", async () => {
  for (const seconds of [600, 120]) {
    await sandbox.setTimeout(seconds * 1000);
    const rest = left((await sandbox.getInfo()).endAt);
    assert.ok(rest > seconds - 20 && rest <= seconds + 1, `${rest}`);
  }
});

test("connect", async () => {
  const again = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 300_000 });
  assert.equal(await again.files.read("a.txt"), "text");
  await assert.rejects(Sandbox.connect("sess-0000000000000000"), SandboxNotFoundError);
});

test("pause and resume", async () => {
  const process = await sandbox.commands.run("sleep 1000", { background: true });
  await sandbox.pause();
  assert.equal(await sandbox.isRunning(), false);
  assert.equal((await sandbox.getInfo()).state, "paused");
  assert.deepEqual(await ids({ state: ["paused"] }), [sandbox.sandboxId]);
  await sandbox.connect({ timeoutMs });
  assert.equal(await sandbox.isRunning(), true);
  const pids = (await sandbox.commands.list()).map((each) => each.pid);
  assert.ok(pids.includes(process.pid));
});

test("snapshots and new sandboxes", async () => {
  await sandbox.files.write("a.txt", "before");
  const snapshot = await sandbox.createSnapshot();
  try {
    await sandbox.files.write("a.txt", "after");
    const other = await Sandbox.create(snapshot.snapshotId, { timeoutMs });
    try {
      assert.equal(await other.files.read("a.txt"), "before");
    } finally {
      await other.kill();
    }
  } finally {
    assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true);
  }
  assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), false);
});

test("fork", async () => {
  await sandbox.files.write("a.txt", "one");
  const forks = await sandbox.fork({ count: 2, timeoutMs });
  try {
    for (const fork of forks) assert.equal(await fork.files.read("a.txt"), "one");
  } finally {
    await Promise.all(forks.map((fork) => fork.kill()));
  }
});

test("metrics", async () => {
  let metrics = [];
  while (metrics.length === 0) {
    metrics = await sandbox.getMetrics();
    if (metrics.length === 0) await new Promise((done) => setTimeout(done, 500));
  }
  assert.ok(metrics.at(-1).memTotal > 0);
});

test("volumes", async () => {
  const volume = await Volume.create(`trial-${randomUUID().slice(0, 12)}`);
  assert.ok((await Volume.list()).some((each) => each.volumeId === volume.volumeId));
  assert.equal(await Volume.destroy(volume.volumeId), true);
});

test("signed addresses", async () => {
  await sandbox.files.write("b.txt", "signed");
  const answer = await fetch(await sandbox.downloadUrl("b.txt"));
  assert.equal(await answer.text(), "signed");
});

test("templates are found and built", async () => {
  assert.equal(await Template.exists("base"), true);
  assert.equal(await Template.exists(`nothing-${randomUUID()}`), false);
  const absent = Template.build(Template().fromImage("debian:12"), "trial");
  await assert.rejects(absent, /paddock images add/);
  const name = `trial-${randomUUID()}`;
  const template = Template()
    .fromTemplate("high")
    .setEnvs({ GREETING: "hello" })
    .runCmd("echo $GREETING > said.txt");
  await Template.build(template, name);
  const built = await Sandbox.create(name);
  assert.equal((await built.commands.run("cat said.txt; echo $GREETING")).stdout, "hello\nhello\n");
  await built.kill();
});

test("what was built alike is taken over", async () => {
  const name = `trial-${randomUUID()}`;
  const line = "cat /proc/sys/kernel/random/uuid > drawn";
  const drawing = () => Template().fromTemplate("high").setEnvs({ A: "1" });
  const drawn = async (template) => {
    await Template.build(template, name);
    const made = await Sandbox.create(name, { timeoutMs });
    try {
      return await made.files.read("drawn");
    } finally {
      await made.kill();
    }
  };
  const first = await drawn(drawing().runCmd(line));
  assert.equal(await drawn(drawing().runCmd(line).runCmd("touch more")), first);
  assert.notEqual(await drawn(drawing().skipCache().runCmd(line)), first);
});

test("tags are changed after the build", async () => {
  const name = `trial-${randomUUID()}`;
  for (const number of [1, 2]) {
    const template = Template().fromTemplate("high").runCmd(`echo ${number} > n`);
    await Template.build(template, `${name}:v${number}`, { tags: ["production"] });
  }
  const { buildId, tags } = await Template.assignTags(`${name}:v1`, ["production", "kept"]);
  assert.deepEqual(tags.toSorted(), ["kept", "production"]);
  const builds = Object.fromEntries(
    (await Template.getTags(name)).map((each) => [each.tag, each.buildId]),
  );
  assert.equal(builds.production, buildId);
  assert.notEqual(builds.v2, buildId);
  const made = await Sandbox.create(`${name}:production`, { timeoutMs });
  assert.equal(await made.files.read("n"), "1\n");
  await made.kill();
  await Template.removeTags(name, "production");
  assert.equal(await Template.exists(`${name}:production`), false);
  const left = (await Template.getTags(name)).map((each) => each.tag);
  assert.deepEqual(left.toSorted(), ["kept", "v1", "v2"]);
  await assert.rejects(Template.assignTags(`${name}:none`, "more"), /there is no template/);
  await assert.rejects(Template.removeTags(name, "production"), /has no tag production/);
});

test("wrong keys and unknown templates", async () => {
  const apiKey = "pdk_nobody-has-this-key";
  await assert.rejects(Sandbox.create({ apiKey }), AuthenticationError);
  await assert.rejects(Sandbox.create(`nothing-${randomUUID()}`), /there is no template/);
});
