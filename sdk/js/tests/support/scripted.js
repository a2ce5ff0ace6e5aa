/** An HTTP server that answers as a test says. */

import { createServer } from "node:http";
import { once } from "node:events";

/** `answer(request, response, body)` answers each request; `requests` counts them. */
export async function scripted(answer) {
  const requests = [];
  const server = createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    requests.push(request);
    answer(request, response, Buffer.concat(parts), requests.length);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    requests,
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}

export function problem(response, status, members, headers = {}) {
  response.writeHead(status, { "Content-Type": "application/problem+json", ...headers });
  response.end(JSON.stringify({ status, ...members }));
}

export function json(response, value, status = 200) {
  response.writeHead(status, { "Content-Type": "application/json" });
  response.end(JSON.stringify(value));
}
