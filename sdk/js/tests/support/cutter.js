/** A TCP proxy whose connections a test can cut. */

import { connect, createServer } from "node:net";
import { once } from "node:events";

export async function cutting(url) {
  const target = new URL(url);
  const sockets = new Set();
  const server = createServer((client) => {
    const upstream = connect(Number(target.port), target.hostname);
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ]) {
      sockets.add(from);
      from.on("close", () => (sockets.delete(from), to.destroy()));
      from.on("error", () => {});
      from.pipe(to);
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    cut: () => sockets.forEach((each) => each.resetAndDestroy?.() ?? each.destroy()),
    close() {
      server.close();
      this.cut();
    },
  };
}
