// Calls of the HTTP API with the credential that this tab keeps.

const PLACE = "paddock.credential";
const RETRY_MS = [500, 1000, 2000, 5000];
// A browser cuts connections when the host's networks change, as with each new container.
const READS = 3;

/** An error answer: `message` says what to do; the other members are as in the problem. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || `The control plane answered ${status}.`);
    const { code, rule, field, remedy, conflicts, refused } = body;
    Object.assign(this, { status, code, rule, field, remedy, conflicts, refused, requestId: body.request_id });
  }
}

/** `{token, session}`; `session` is the id of the only session that a handle may use. */
export function credential() {
  const kept = sessionStorage.getItem(PLACE);
  return kept ? JSON.parse(kept) : null;
}

export function keepCredential(value) {
  if (value) sessionStorage.setItem(PLACE, JSON.stringify(value));
  else sessionStorage.removeItem(PLACE);
}

/** The path of a session, or of a part of it. */
export function ofSession(id, ...rest) {
  return ["/api/sessions", id, ...rest].map((part, at) => (at ? encodeURIComponent(part) : part)).join("/");
}

export function withQuery(path, members) {
  const given = Object.entries(members).filter(([, value]) => value !== "" && value != null);
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

// A token of an issuer is replaced so long before it expires.
const EARLY_MS = 30_000;
let refreshing = null;

/** What proves who calls: the key or handle, or the token of an issuer, which is kept fresh. */
async function token() {
  const given = credential();
  if (!given?.refresh || given.until - Date.now() > EARLY_MS) return given?.token;
  // A refresh token may be used once, however many calls wait for the next.
  refreshing ??= (async () => {
    const { refreshed } = await import("./pages/sign_in_elsewhere.js");
    const next = await refreshed(given);
    if (credential()?.refresh === given.refresh) keepCredential(next);
  })().catch(() => {}).finally(() => { refreshing = null; });
  await refreshing;
  return credential()?.token;
}

/** The response of a call. Throws a Problem, or a TypeError if nothing answers. */
export async function request(method, path, { json, body, signal, headers: more } = {}) {
  const headers = { ...more, Authorization: `Bearer ${await token()}` };
  if (json !== undefined) headers["Content-Type"] = "application/json";
  const options = { method, headers, signal, body: json === undefined ? body : JSON.stringify(json) };
  const response = await attempt(() => fetch(path, options), method === "GET" ? READS : 1);
  if (!response.ok) throw new Problem(response.status, await response.json().catch(() => ({})));
  return response;
}

async function attempt(call, times) {
  for (;;) {
    try { return await call(); } catch (error) {
      times -= 1;
      if (!times || !(error instanceof TypeError)) throw error;
      await paused(RETRY_MS[0]);
    }
  }
}

const paused = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export const get = async (path, options) => (await request("GET", path, options)).json();
export const send = async (method, path, json) => (await request(method, path, { json })).json();

/**
 * Follows an event stream until `signal` aborts it, and connects again after a failure.
 *
 * `onEvent` gets each audit event, `onState` "live", "reconnecting" or "over". Continues after the
 * last event that was received: `position` names its member.
 */
export async function follow(path, after, position, onEvent, onState, signal) {
  let failures = 0;
  while (!signal.aborted) {
    try {
      const open = () => { failures = 0; onState("live"); };
      for await (const { name, id, data } of streamed(withQuery(path, { after }), signal, open)) {
        if (!data) continue;
        after = position === "id" ? id : data[position];
        // A cluster also says which node has gone away or is back: the page of nodes has that.
        if (!name.startsWith("node.")) onEvent(data, after);
      }
      if (position === "seq") return onState("over");
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && error.status < 500 && error.status !== 429) {
        return onState("over", error);
      }
    }
    onState("reconnecting");
    await paused(RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)]);
  }
}

/**
 * The events `{name, id, data}` of a stream, until it ends; `onOpen` is called once it has begun. With `json`
 * it is the answer to a POST.
 */
export async function* streamed(path, signal, onOpen = () => {}, json = undefined) {
  const headers = { Accept: "text/event-stream" };
  const response = await request(json === undefined ? "GET" : "POST", path, { signal, headers, json });
  onOpen();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    // A part without data says that the connection is alive.
    for (const part of parts) yield { name: line(part, "event: "), id: line(part, "id: "), data: JSON.parse(line(part, "data: ") ?? "null") };
  }
}

const line = (part, start) => part.split("\n").find((each) => each.startsWith(start))?.slice(start.length);
