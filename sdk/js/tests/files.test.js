import assert from "node:assert/strict";
import { test } from "node:test";
import { LimitError, NotFoundError } from "paddock";
import { withSession } from "./support/clients.js";

test("files are written and read in every form", async () => {
  await withSession({}, async ({ files }) => {
    assert.equal((await files.write("text", "é\n")).bytes, 3);
    assert.equal(await files.readText("text"), "é\n");
    const bytes = new Uint8Array([0, 255, 10]);
    async function* pieces() {
      yield bytes;
      yield bytes;
    }
    for (const content of [bytes, bytes.buffer, new Blob([bytes]), new Blob([bytes]).stream()]) {
      await files.write("bytes", content);
      assert.deepEqual(await files.read("bytes"), bytes);
    }
    assert.equal((await files.write("bytes", pieces(), { permissions: 0o750 })).bytes, 6);
    await files.append("bytes", "z");
    assert.equal((await files.read("bytes")).length, 7);
    let length = 0;
    for await (const piece of await files.readStream("bytes")) length += piece.length;
    assert.equal(length, 7);
    await assert.rejects(files.read("bytes", { maxBytes: 6 }), LimitError);
    await assert.rejects(files.read("none"), NotFoundError);
    await assert.rejects(files.readStream("none"), NotFoundError);
  });
});

test("an upload ends with its source's error", async () => {
  await withSession({}, async ({ files }) => {
    async function* broken() {
      yield new Uint8Array(1);
      throw new Error("the source is broken");
    }
    await assert.rejects(files.write("half", broken()), /the source is broken/);
    await assert.rejects(files.read("half"), NotFoundError);
  });
});

test("a directory is one archive", async () => {
  await withSession({}, async ({ files }) => {
    await files.write("tree/a", "alpha");
    await files.symlink("tree/b", "a");
    const archive = await files.readArchive(".");
    const parts = [];
    for await (const part of archive) parts.push(part);
    const written = await files.writeArchive(new Blob(parts), ".");
    assert.ok(written.files >= 1);
    assert.equal(written.links, 1);
  });
});

test("a large file passes in pieces", async () => {
  await withSession({}, async ({ files }) => {
    const large = new Uint8Array(3 * 1024 * 1024).map((_, index) => index % 251);
    await files.write("large", new Blob([large]).stream());
    assert.deepEqual(await files.read("large"), large);
  });
});
