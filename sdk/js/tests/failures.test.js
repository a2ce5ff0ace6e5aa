import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import * as sdk from "paddock";
import { json, problem, scripted } from "./support/scripted.js";

const {
  ArgumentError,
  BudgetExceededError,
  CapacityExhaustedError,
  ConnectionLostError,
  NoAnswerError,
  NotPaddockError,
  OldServerError,
  Paddock,
  PaddockAPIError,
  RateLimitedError,
  UnreachableError,
} = sdk;

async function answering(answer, work, options = {}) {
  const server = await scripted(answer);
  try {
    return await work(new Paddock({ url: server.url, ...options }), server);
  } finally {
    server.close();
  }
}

const PAGE = { items: [], next: null };

test("a GET is sent again after a temporary error, anything else never", async () => {
  const failing = (request, response, _body, count) =>
    count < 3 ? problem(response, 502, { code: "sandbox_unavailable" }) : json(response, PAGE);
  await answering(failing, async (client, { requests }) => {
    assert.deepEqual(await client.sessions.list(), []);
    assert.equal(requests.length, 3);
  });
  await answering(failing, async (client, { requests }) => {
    await assert.rejects(client.sessions.create(), sdk.SandboxUnavailableError);
    await assert.rejects(client.secrets.remove("a"), sdk.SandboxUnavailableError);
    assert.equal(requests.length, 2);
  });
  await answering(
    failing,
    async (client, { requests }) => {
      await assert.rejects(client.levels(), sdk.SandboxUnavailableError);
      assert.equal(requests.length, 1);
    },
    { getRetries: 0 },
  );
});

test("a new session waits for capacity, as long as it may", async () => {
  const full = (request, response, _body, count) =>
    count < 2
      ? problem(response, 503, { code: "capacity_exhausted", retry_after: 0.1 })
      : json(response, { id: "one", status: "active", handle: "h" }, 201);
  await answering(full, async (client) => {
    await assert.rejects(client.sessions.create(), CapacityExhaustedError);
  });
  const patient = { capacityWait: 60 };
  await answering(full, async (client) => assert.ok(await client.sessions.create()), patient);
});

test("an error says what it knows", async () => {
  const budget = { code: "budget_exceeded", detail: "no more", kind: "commands", limit: 3 };
  await answering(
    (_request, response) => problem(response, 429, budget),
    async (client) => {
      await assert.rejects(client.sessions.create(), (error) => {
        assert.ok(error instanceof BudgetExceededError);
        assert.deepEqual([error.message, error.problem.kind], ["no more", "commands"]);
        return true;
      });
    },
  );
  await answering(
    (_request, response) => problem(response, 429, { code: "rate_limited" }, { "Retry-After": "7" }),
    async (client) => {
      await assert.rejects(client.secrets.set("a", { value: "b", hosts: [] }), (error) => {
        assert.ok(error instanceof RateLimitedError);
        assert.equal(error.retryAfter, 7);
        return true;
      });
    },
  );
  await answering(
    (_request, response) => problem(response, 418, { code: "teapot" }),
    async (client) => {
      await assert.rejects(client.sessions.create(), (error) => {
        assert.equal(error.constructor, PaddockAPIError);
        return true;
      });
    },
  );
});

test("every code of the API has its class", async () => {
  const document = JSON.parse(await readFile(process.env.OPENAPI, "utf8"));
  const names = Object.keys(document.components.responses);
  const codes = [...new Set(names.flatMap((name) => name.split("-")))];
  assert.ok(codes.includes("permission_denied"));
  const others = ["method_not_allowed"]; // an `OldServerError`
  assert.deepEqual(Object.keys(sdk.ERRORS).sort(), codes.filter((code) => !others.includes(code)).sort());
});

test("what is no control plane is told", async () => {
  const gone = await scripted(() => {});
  gone.close();
  await assert.rejects(new Paddock({ url: gone.url }).sessions.create(), UnreachableError);
  for (const [status, error] of [
    [200, NotPaddockError],
    [302, NotPaddockError],
    [503, UnreachableError],
  ]) {
    const page = (_request, response) => {
      response.writeHead(status, { "Content-Type": "text/html", Location: "http://127.0.0.1:1/" });
      response.end("<html>");
    };
    await answering(page, async (client) => {
      await assert.rejects(client.sessions.create(), error);
    });
  }
  const none = { code: "not_found", detail: "there is nothing at this path" };
  await answering(
    (_request, response) => problem(response, 404, none),
    async (client) => await assert.rejects(client.sessions.create(), OldServerError),
  );
});

test("a missing, a late and a broken answer are told apart", async () => {
  await answering(
    () => {},
    async (client, { requests }) => {
      await assert.rejects(client.sessions.create({}, { timeout: 0.2 }), NoAnswerError);
      assert.equal(requests.length, 1);
    },
  );
  await answering(
    (request) => request.socket.destroy(),
    async (client) => await assert.rejects(client.sessions.create(), ConnectionLostError),
  );
  const half = (request, response) => {
    if (!request.url.includes("/files")) return json(response, { id: "one", status: "active" });
    response.writeHead(200, { "Content-Type": "application/octet-stream", "Content-Length": 10 });
    response.write("half");
    setImmediate(() => response.destroy());
  };
  await answering(half, async (client) => {
    const { files } = await client.sessions.get("one");
    await assert.rejects(files.read("a"), ConnectionLostError);
  });
});

test("an aborted call throws the signal's reason, also while it waits to retry", async () => {
  const failing = (_request, response) =>
    problem(response, 429, { code: "rate_limited", retry_after: 600 });
  await answering(failing, async (client, { requests }) => {
    const leaving = new AbortController();
    const listing = client.sessions.list({}, { signal: leaving.signal });
    const told = assert.rejects(async () => await listing, { name: "AbortError" });
    while (!requests.length) await new Promise((resolve) => setImmediate(resolve));
    leaving.abort();
    await told;
  });
});

test("arguments that can't be sent are refused", async () => {
  for (const url of ["", "localhost:8700", "ftp://a", "http://a:b@c", "http://a/?b"]) {
    assert.throws(() => new Paddock({ url }), ArgumentError, url);
  }
  for (const key of ["a b", "é", "a\nb"]) {
    assert.throws(() => new Paddock({ key }), (error) => {
      assert.ok(error instanceof ArgumentError);
      assert.ok(!error.message.includes(key));
      return true;
    });
  }
  await answering(
    (request, response) => json(response, { id: request.url }),
    async (client, { requests }) => {
      await assert.rejects(client.sessions.get(""), ArgumentError);
      await assert.rejects(client.sessions.get("\ud800"), ArgumentError);
      await client.sessions.get("../a b");
      await assert.rejects(client.sessions.get(".."), ArgumentError);
      assert.deepEqual(requests.map(({ url }) => url), ["/api/sessions/..%2Fa%20b"]);
    },
  );
});

test("a key and an address come from the environment", async () => {
  const { PADDOCK_URL, PADDOCK_KEY } = process.env;
  delete process.env.PADDOCK_KEY;
  assert.throws(() => new Paddock(), /PADDOCK_KEY/);
  process.env.PADDOCK_KEY = PADDOCK_KEY;
  delete process.env.PADDOCK_URL;
  assert.throws(() => new Paddock(), /PADDOCK_URL/);
  process.env.PADDOCK_URL = PADDOCK_URL;
  assert.equal((await new Paddock().ready()).status, "ready");
});

test("the trace of a program is passed on", async () => {
  const api = Symbol.for("opentelemetry.js.api.1");
  const span = Symbol.for("OpenTelemetry Context Key SPAN");
  const place = { traceId: "4bf92f3577b34da6a3ce929d0e0e4736", spanId: "00f067aa0ba902b7" };
  const within = async (found) => {
    const getValue = (key) => (key === span && found ? { spanContext: () => found } : undefined);
    globalThis[api] = { context: { active: () => ({ getValue }) } };
    const answer = (request, response) => json(response, PAGE);
    return await answering(answer, async (client, { requests }) => {
      await client.sessions.list();
      return requests[0].headers.traceparent;
    });
  };
  try {
    const ids = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
    assert.equal(await within({ ...place, traceFlags: 1 }), `00-${ids}-01`);
    assert.equal(await within({ ...place, traceFlags: 0 }), `00-${ids}-00`);
    for (const odd of ["0".repeat(32), "4bf9", `${"4".repeat(31)}\n`]) {
      assert.equal(await within({ ...place, traceId: odd, traceFlags: 1 }), undefined);
    }
    assert.equal(await within(undefined), undefined);
  } finally {
    delete globalThis[api];
  }
});
