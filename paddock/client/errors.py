"""What can go wrong for a client: refusals by their code, and everything that is no answer."""

from collections.abc import Mapping
from typing import Any


class PaddockError(Exception):
    """Anything that this package raises on its own account; its text is one line."""


class UnreachableError(PaddockError):
    """No control plane answers at the URL: nothing was sent, so nothing was done."""


class ConnectionLostError(PaddockError):
    """The connection broke before the answer was whole; what was asked for may have been done."""


class NoAnswerError(PaddockError, TimeoutError):
    """No answer came in time; what was asked for may have been done."""


class NotPaddockError(PaddockError):
    """What answers at the URL is not a Paddock control plane."""


class OldServerError(PaddockError):
    """The control plane lacks something that this client knows: it is an older one."""


class ApprovalPendingError(PaddockError):
    """A person has not decided yet, and nothing was run: the same call again asks again.

    Attributes:
        approval_id: what `approvals` knows it by.
    """

    def __init__(self, approval_id: str) -> None:
        self.approval_id = approval_id
        super().__init__(f"{approval_id} waits for an approval; nothing was run")


class LimitError(PaddockError):
    """More than the caller said to take, or than the API can list."""


class PaddockAPIError(PaddockError):
    """The control plane refused or failed, and said so in a problem document.

    Attributes:
        status: the HTTP status.
        code: stable name of what went wrong; a code that this client does not know has
            no class of its own.
        detail: one sentence.
        rule: the policy rule that refused, where one did.
        request_id: names the request in the control plane's log.
        retry_after: seconds after which trying again makes sense, where that is known.
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
    """It does not exist, or belongs to somebody else."""

    code = "not_found"


class ConflictError(PaddockAPIError):
    """It clashes with what is there."""

    code = "conflict"


class InvalidTransitionError(ConflictError):
    """The session's status does not allow this."""

    code = "invalid_transition"


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


class TooLargeError(PaddockAPIError):
    """What was sent is over the limit."""

    code = "too_large"


class RateLimitedError(PaddockAPIError):
    """The key has used up what it may do for now; `retry_after` says when it may again."""

    code = "rate_limited"


class SandboxUnavailableError(PaddockAPIError):
    """The sandbox does not answer; the call may be tried again."""

    code = "sandbox_unavailable"


class CapacityExhaustedError(PaddockAPIError):
    """The host has no room for another sandbox, or its disk for new work.

    `retry_after` says when to ask again.
    """

    code = "capacity_exhausted"


class AuditUnavailableError(PaddockAPIError):
    """The audit ledger cannot be written, so nothing new is done."""

    code = "audit_unavailable"


class EngineUnavailableError(PaddockAPIError):
    """The container engine does not answer or refused; the call may be tried again."""

    code = "engine_unavailable"


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
        SessionTerminatedError,
        BudgetExceededError,
        TooLargeError,
        RateLimitedError,
        SandboxUnavailableError,
        CapacityExhaustedError,
        AuditUnavailableError,
        EngineUnavailableError,
        InternalServerError,
    )
}


def api_error(
    status: int, document: Mapping[str, Any], retry_after: float | None = None
) -> PaddockAPIError:
    """The error of a problem document, in the class of its code."""
    kind = _BY_CODE.get(str(document.get("code")), PaddockAPIError)
    return kind(status, document, retry_after)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
