/** The client's errors: refusals by their code, and everything else that is not an answer. */

import type { Problem } from "./generated/contract.js";
import { REMEDIES } from "./generated/remedies.js";

/** Base of all errors of this package, except for the reason of an aborted `AbortSignal`. */
export class PaddockError extends Error {
  override get name(): string {
    return this.constructor.name;
  }
}

/** An argument can't be part of a request: nothing was sent. */
export class ArgumentError extends PaddockError {}

/** No control plane answers at the URL: nothing was sent, so nothing was done. */
export class UnreachableError extends PaddockError {}

/** The connection broke before the answer was complete; the request may have taken effect. */
export class ConnectionLostError extends PaddockError {}

/** No answer came in time; the request may have taken effect. */
export class NoAnswerError extends PaddockError {}

/** The server at the URL is not a Paddock control plane. */
export class NotPaddockError extends PaddockError {}

/** The control plane lacks something that this client needs, because it is older. */
export class OldServerError extends PaddockError {}

/** More than the caller's limit. */
export class LimitError extends PaddockError {}

/** A person has not decided yet, and nothing was run; repeating the call asks again. */
export class ApprovalPendingError extends PaddockError {
  constructor(readonly approvalId: string) {
    super(`${approvalId} waits for an approval; nothing was run`);
  }
}

/** The control plane refused or failed, and answered with a problem document. */
export class PaddockAPIError extends PaddockError {
  /** Stable name of the error; a code that this client does not know has no class of its own. */
  readonly code: string;
  /** One sentence. */
  readonly detail: string;
  /** The policy rule that refused, if any. */
  readonly rule: string | undefined;
  /** What to do instead, if a rule refused that this client knows. */
  readonly remedy: string | undefined;
  /** The request's id in the control plane's log. */
  readonly requestId: string | undefined;
  /** Seconds after which a retry makes sense, if known. */
  readonly retryAfter: number | undefined;

  /** `status` is that of HTTP; `problem` the whole document, with members such as `field`. */
  constructor(
    readonly status: number,
    readonly problem: Partial<Problem>,
    retryAfter?: number,
  ) {
    const detail = problem.detail || `HTTP ${status}`;
    super(detail);
    this.detail = detail;
    this.code = problem.code ?? "";
    this.rule = problem.rule ?? undefined;
    this.remedy = this.rule === undefined ? undefined : REMEDIES[this.rule];
    this.requestId = problem.request_id;
    this.retryAfter = problem.retry_after ?? retryAfter;
  }
}

/** The request is malformed; `problem.field` names the part. */
export class ValidationError extends PaddockAPIError {}

/** The control plane does not answer for the host of the client's URL. */
export class MisdirectedRequestError extends PaddockAPIError {}

/** The key or handle is not known. */
export class UnauthorizedError extends PaddockAPIError {}

/** A policy refused (`rule` names it), or the credential does not permit this. */
export class PermissionDeniedError extends PaddockAPIError {}

/** It does not exist, or belongs to another owner. */
export class NotFoundError extends PaddockAPIError {}

/** It conflicts with the current state. */
export class ConflictError extends PaddockAPIError {}

/** The file is not in the version that was asked for, or exists already. */
export class PreconditionFailedError extends PaddockAPIError {}

/** The file has none of the bytes that were asked for. */
export class RangeNotSatisfiableError extends PaddockAPIError {}

/** The session's status does not allow this. */
export class InvalidTransitionError extends ConflictError {}

/** The pack of a work item may not be refined again: the work needs a person. */
export class MaxRefinementsError extends ConflictError {}

/** Too much is running in the session already. */
export class BusyError extends ConflictError {}

/** The session has ended; its record can still be read. */
export class SessionTerminatedError extends PaddockAPIError {}

/** The session's budget is used up; `problem` has `kind`, `limit` and `consumed`. */
export class BudgetExceededError extends PaddockAPIError {}

/** The request exceeds a limit. */
export class TooLargeError extends PaddockAPIError {}

/** The key has reached a limit; `retryAfter` tells when it may try again. */
export class RateLimitedError extends PaddockAPIError {}

/** The sandbox does not answer; the call may be retried. */
export class SandboxUnavailableError extends PaddockAPIError {}

/** The host has no room for another sandbox; `retryAfter` tells when to try again. */
export class CapacityExhaustedError extends PaddockAPIError {}

/** The audit ledger cannot be written, so nothing new is started. */
export class AuditUnavailableError extends PaddockAPIError {}

/** The container engine does not answer or refused; the call may be retried. */
export class EngineUnavailableError extends PaddockAPIError {}

/** The cluster's database does not answer: what needs it is refused, the rest goes on. */
export class ClusterUnavailableError extends PaddockAPIError {}

/** The issuer of tokens does not answer, so nobody new can sign in. */
export class SignInUnavailableError extends PaddockAPIError {}

/** The machine where it is does not answer; with 502, the record says what was carried out. */
export class NodeUnavailableError extends PaddockAPIError {}

/** Something failed inside the control plane; its log has the request id. */
export class InternalServerError extends PaddockAPIError {}

/** The class of each code. */
export const ERRORS: Readonly<Record<string, typeof PaddockAPIError>> = {
  validation_error: ValidationError,
  misdirected_request: MisdirectedRequestError,
  unauthorized: UnauthorizedError,
  permission_denied: PermissionDeniedError,
  not_found: NotFoundError,
  conflict: ConflictError,
  precondition_failed: PreconditionFailedError,
  range_not_satisfiable: RangeNotSatisfiableError,
  invalid_transition: InvalidTransitionError,
  max_refinements_exceeded: MaxRefinementsError,
  busy: BusyError,
  session_terminated: SessionTerminatedError,
  budget_exceeded: BudgetExceededError,
  too_large: TooLargeError,
  rate_limited: RateLimitedError,
  sandbox_unavailable: SandboxUnavailableError,
  capacity_exhausted: CapacityExhaustedError,
  audit_unavailable: AuditUnavailableError,
  engine_unavailable: EngineUnavailableError,
  cluster_unavailable: ClusterUnavailableError,
  sign_in_unavailable: SignInUnavailableError,
  node_unavailable: NodeUnavailableError,
  internal_error: InternalServerError,
};

/** The error for a problem document, in the class of its code. */
export function apiError(
  status: number,
  problem: Partial<Problem>,
  retryAfter?: number,
): PaddockAPIError {
  const known = ERRORS[problem.code ?? ""] ?? PaddockAPIError;
  return new known(status, problem, retryAfter);
}
