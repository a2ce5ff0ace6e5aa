/** Translates answers of HTTP, or their absence, into values and errors. */

import type { Deadline } from "./deadline.js";
import {
  ConnectionLostError,
  NoAnswerError,
  NotPaddockError,
  OldServerError,
  PaddockError,
  UnreachableError,
  apiError,
} from "./errors.js";
import type { Problem } from "./generated/contract.js";

// The API's answer for a path without a route, never used for a missing object.
const NO_ROUTE = "there is nothing at this path";
const PROXY_STATUSES = [502, 503, 504];
const NO_CONNECTION = new Set([
  ...["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "ETIMEDOUT"],
  ...["UND_ERR_CONNECT_TIMEOUT", "ConnectionRefused", "FailedToOpenSocket"],
]);

/** What to throw for a failure of `what`, such as `GET /api/sessions`. */
export function translated(error: unknown, what: string, deadline: Deadline): unknown {
  if (deadline.outer?.aborted) return deadline.outer.reason;
  if (error instanceof PaddockError) return error;
  if (deadline.passed) return new NoAnswerError(`${what}: no answer in time`, { cause: error });
  const reason = reasonOf(error);
  if (isUnconnected(error, reason)) {
    return new UnreachableError(`no control plane answers: ${reason}`, { cause: error });
  }
  return new ConnectionLostError(`${what}: connection lost: ${reason}`, { cause: error });
}

/** Runtimes differ in how they tell that nothing was sent. */
function isUnconnected(error: unknown, reason: string): boolean {
  for (const each of [error, causeOf(error)]) {
    const code = (each as { code?: unknown } | undefined)?.code;
    if (typeof code === "string" && NO_CONNECTION.has(code)) return true;
  }
  return /client error \(Connect\)/.test(reason);
}

function causeOf(error: unknown): unknown {
  return error instanceof Error ? error.cause : undefined;
}

function reasonOf(error: unknown): string {
  const cause = causeOf(error);
  for (const each of [cause, error]) {
    if (each instanceof Error) {
      const code = (each as { code?: unknown }).code;
      const said = each.message || (typeof code === "string" ? code : "");
      if (said) return said;
    }
  }
  return String(error);
}

/** The media type of an answer, without parameters. */
export function mediaType(response: Response): string {
  return (response.headers.get("content-type") ?? "").split(";", 1)[0]!.trim().toLowerCase();
}

/** The JSON object of an answer. Throws `NotPaddockError`. */
export async function jsonObject(response: Response): Promise<object> {
  const value = mediaType(response) === "application/json" && objectOf(await response.text());
  if (!value) throw notPaddock(response);
  return value;
}

/** The JSON object of a text; undefined for any other text. */
export function objectOf(text: string): object | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** The error for an answer that is not a success. */
export async function refusal(response: Response, what: string): Promise<PaddockError> {
  if (mediaType(response) !== "application/problem+json") return notPaddock(response);
  const after = response.headers.get("retry-after") ?? "";
  const seconds = /^\d+$/.test(after) ? Number(after) : undefined;
  return problemOf(response.status, await response.text(), what, seconds) ?? notPaddock(response);
}

/** The error of a problem document; undefined for any other text. */
export function problemOf(
  status: number,
  text: string,
  what: string,
  retryAfter?: number,
): PaddockError | undefined {
  const problem = objectOf(text) as Partial<Problem> | undefined;
  if (typeof problem?.code !== "string") return undefined;
  const isUnknown = problem.code === "not_found" && problem.detail === NO_ROUTE;
  if (problem.code === "method_not_allowed" || isUnknown) {
    return new OldServerError(
      `the control plane has no ${what}: it is older than this client,` +
        " or the URL has a path that it should not have",
    );
  }
  return apiError(status, problem, retryAfter);
}

/** The error for an answer that does not come from the API. */
export function notPaddock(response: Response): PaddockError {
  if (PROXY_STATUSES.includes(response.status)) {
    return new UnreachableError(
      `no control plane answers: something in front of it says HTTP ${response.status}`,
    );
  }
  return new NotPaddockError(
    `the server at the URL is not a Paddock control plane: it answered with HTTP` +
      ` ${response.status} and ${mediaType(response) || "no content"}`,
  );
}
