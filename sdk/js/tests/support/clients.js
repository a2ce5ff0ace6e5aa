/** What the tests share: a client of the instance that the variables name, and its sessions. */

import { Paddock } from "paddock";

export const paddock = new Paddock();

/** Calls `work` with a session that is closed at the end. */
export async function withSession(terms, work, client = paddock) {
  const session = await client.sessions.create(terms);
  try {
    return await work(session);
  } finally {
    await session.close({ purge: true });
  }
}

/** The first `count` items, or all. */
export async function take(items, count = Infinity) {
  const found = [];
  for await (const item of items) {
    found.push(item);
    if (found.length >= count) break;
  }
  return found;
}
