"""The client's errors: refusals by their code, and everything else that is not an answer."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paddock.contract.commands import CommandResult


class PaddockError(Exception):
    """Base of all errors that this package raises itself; the text is one line."""


class ArgumentError(PaddockError, ValueError):
    """An argument can't be part of a request: nothing was sent."""


class UnreachableError(PaddockError):
    """No control plane answers at the URL: nothing was sent, so nothing was done."""


class ConnectionLostError(PaddockError):
    """The connection broke before the answer was complete; the request may have taken effect."""


class NoAnswerError(PaddockError, TimeoutError):
    """No answer came in time; the request may have taken effect."""


class NotPaddockError(PaddockError):
    """The server at the URL is not a Paddock control plane."""


class OldServerError(PaddockError):
    """The control plane lacks something that this client needs, because it is older."""


class ApprovalPendingError(PaddockError):
    """A person has not decided yet, and nothing was run; repeating the call asks again.

    Attributes:
        approval_id: the approval's id in `approvals`.
    """

    def __init__(self, approval_id: str) -> None:
        self.approval_id = approval_id
        super().__init__(f"{approval_id} waits for an approval; nothing was run")


class OutputLostError(PaddockError):
    """Bytes of a command's output are not kept.

    Attributes:
        offset: where output that is kept begins again.
    """

    def __init__(self, offset: int, missing: int) -> None:
        self.offset = offset
        super().__init__(f"{missing} bytes of the output before byte {offset} are not kept")


class GitError(PaddockError):
    """Git failed in the sandbox, or the sandbox has none.

    Attributes:
        what: what failed, as one line.
        remedy: what to do about it; None: nobody knows.
        result: the result of git's command.
    """

    def __init__(self, what: str, remedy: str | None, result: "CommandResult") -> None:
        self.what = what
        self.remedy = remedy
        self.result = result
        super().__init__(what if remedy is None else f"{what}; {remedy}")


class LimitError(PaddockError):
    """More than the caller's limit, or than the API can list."""


class PaddockAPIError(PaddockError):
    """The control plane refused or failed, and answered with a problem document.

    Attributes:
        status: the HTTP status.
        code: stable name of the error; a code that this client does not know has no class of its
            own.
        detail: one sentence.
        rule: the policy rule that refused, if any.
        request_id: the request's id in the control plane's log.
        retry_after: seconds after which a retry makes sense, if known.
        fields: every other member of the document, such as `field`.
    """

    code: str = ""

    def __init__(
        self, status: int, document: Mapping[str, Any], retry_after: float | None = None
    ) -> None:
        self.status = status
        self.code = str(document.get("code") or self.code)
        self.detail = str(document.get("detail") or f"HTTP {status}")
        super().__init__(self.detail)
        self.rule = _text(document.get("rule"))
        self.request_id = _text(document.get("request_id"))
        own = document.get("retry_after")
        self.retry_after = float(own) if isinstance(own, int | float) else retry_after
        self.fields = {name: document[name] for name in document if name not in _STANDARD}


class ValidationError(PaddockAPIError):
    """The request is malformed; `fields["field"]` names the part."""

    code = "validation_error"


class MisdirectedRequestError(PaddockAPIError):
    """The control plane does not answer for the host of the client's URL."""

    code = "misdirected_request"


class UnauthorizedError(PaddockAPIError):
    """The key or handle is not known."""

    code = "unauthorized"


class PermissionDeniedError(PaddockAPIError):
    """A policy refused (`rule` names it), or the credential does not permit this."""

    code = "permission_denied"


class NotFoundError(PaddockAPIError):
    """It does not exist, or belongs to another owner."""

    code = "not_found"


class ConflictError(PaddockAPIError):
    """It conflicts with the current state."""

    code = "conflict"


class InvalidTransitionError(ConflictError):
    """The session's status does not allow this."""

    code = "invalid_transition"


class MaxRefinementsError(ConflictError):
    """The pack of a work item may not be refined again: the work needs a person."""

    code = "max_refinements_exceeded"


class BusyError(ConflictError):
    """Too much is running in the session already."""

    code = "busy"


class SessionTerminatedError(PaddockAPIError):
    """The session has ended; its record can still be read."""

    code = "session_terminated"


class BudgetExceededError(PaddockAPIError):
    """The session's budget is used up, and the session ended.

    `fields` has `kind`, `limit` and `consumed`.
    """

    code = "budget_exceeded"


class PreconditionFailedError(PaddockAPIError):
    """The file is not in the version that was named: somebody else has changed it."""

    code = "precondition_failed"


class RangeNotSatisfiableError(PaddockAPIError):
    """The file has no byte of the range."""

    code = "range_not_satisfiable"


class TooLargeError(PaddockAPIError):
    """The request exceeds a limit."""

    code = "too_large"


class RateLimitedError(PaddockAPIError):
    """The key has reached a limit; `retry_after` tells when it may try again."""

    code = "rate_limited"


class SandboxUnavailableError(PaddockAPIError):
    """The sandbox does not answer; the call may be retried."""

    code = "sandbox_unavailable"


class CapacityExhaustedError(PaddockAPIError):
    """The host has no room for another sandbox, or its disk for new work.

    `retry_after` tells when to try again.
    """

    code = "capacity_exhausted"


class AuditUnavailableError(PaddockAPIError):
    """The audit ledger cannot be written, so nothing new is started."""

    code = "audit_unavailable"


class EngineUnavailableError(PaddockAPIError):
    """The container engine does not answer or refused; the call may be retried."""

    code = "engine_unavailable"


class ClusterUnavailableError(PaddockAPIError):
    """The cluster's database does not answer: what needs it is refused, the rest goes on."""

    code = "cluster_unavailable"


class SignInUnavailableError(PaddockAPIError):
    """The issuer of tokens does not answer, so nobody new can sign in."""

    code = "sign_in_unavailable"


class NodeUnavailableError(PaddockAPIError):
    """The machine where it is does not answer.

    With status 503, nothing was sent to it; with 502, it went away after the request was sent, and
    the record says whether it was carried out.
    """

    code = "node_unavailable"


class InternalServerError(PaddockAPIError):
    """Something failed inside the control plane; its log has the request id."""

    code = "internal_error"


_STANDARD = frozenset(
    {"type", "title", "status", "code", "detail", "rule", "request_id", "retry_after"}
)
_BY_CODE: Mapping[str, type[PaddockAPIError]] = {
    kind.code: kind
    for kind in (
        ValidationError,
        MisdirectedRequestError,
        UnauthorizedError,
        PermissionDeniedError,
        NotFoundError,
        ConflictError,
        InvalidTransitionError,
        BusyError,
        MaxRefinementsError,
        SessionTerminatedError,
        BudgetExceededError,
        PreconditionFailedError,
        RangeNotSatisfiableError,
        TooLargeError,
        RateLimitedError,
        SandboxUnavailableError,
        CapacityExhaustedError,
        AuditUnavailableError,
        EngineUnavailableError,
        ClusterUnavailableError,
        SignInUnavailableError,
        NodeUnavailableError,
        InternalServerError,
    )
}


def api_error(
    status: int, document: Mapping[str, Any], retry_after: float | None = None
) -> PaddockAPIError:
    """The error for a problem document, in the class of its code."""
    kind = _BY_CODE.get(str(document.get("code")), PaddockAPIError)
    return kind(status, document, retry_after)


def event_error(data: Mapping[str, Any]) -> PaddockAPIError:
    """The error that an event of a stream has."""
    status = data.get("status")
    return api_error(status if isinstance(status, int) else 500, data)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
