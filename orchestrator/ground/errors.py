"""The domain's errors: a stable code and a sentence, no HTTP."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# As often, a node renews its lease and tries to reach the cluster's database.
_CLUSTER_RETRY_SECONDS = 3


class PaddockError(Exception):
    """A refusal or failure that a client may see.

    `code` is stable and documented; `detail` is one sentence that says what to do; `fields` are
    further members of the error document (`rule`, `field`, `retry_after`, …).
    """

    code = "internal_error"

    def __init__(self, detail: str, **fields: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.fields = {name: value for name, value in fields.items() if value is not None}


@contextmanager
def naming(**fields: str) -> Iterator[None]:
    """Adds fields to each error of the block: what exists already, such as a recorded command."""
    try:
        yield
    except PaddockError as error:
        error.fields = fields | error.fields
        raise


class ValidationError(PaddockError):
    """The request is malformed; `field` names the part."""

    code = "validation_error"


class MisdirectedRequestError(PaddockError):
    """The request names a host that the control plane does not answer for."""

    code = "misdirected_request"


class UnauthorizedError(PaddockError):
    """There is no credential, or an unknown one."""

    code = "unauthorized"


class PermissionDeniedError(PaddockError):
    """A policy refused the request; `rule` names it."""

    code = "permission_denied"


class NotFoundError(PaddockError):
    """It does not exist, or belongs to someone else."""

    code = "not_found"


class ConflictError(PaddockError):
    """It conflicts with the present state."""

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


class SessionTerminatedError(PaddockError):
    """The session has ended; its record can still be read."""

    code = "session_terminated"


class BudgetExceededError(PaddockError):
    """The session has used up its budget and ended; `kind`, `limit` and `consumed` say of what."""

    code = "budget_exceeded"


class TooLargeError(PaddockError):
    """The body exceeds the limit."""

    code = "too_large"


class PreconditionFailedError(PaddockError):
    """A file is not in the version that `If-Match` or `If-None-Match` names."""

    code = "precondition_failed"


class RangeNotSatisfiableError(PaddockError):
    """The file has no byte of the range."""

    code = "range_not_satisfiable"


class SandboxUnavailableError(PaddockError):
    """The sandbox agent does not answer; the call may be repeated."""

    code = "sandbox_unavailable"


class RateLimitedError(PaddockError):
    """The API key has reached a limit; `limit` names it, `retry_after` is in seconds."""

    code = "rate_limited"


class CapacityExhaustedError(PaddockError):
    """The host has no room for another sandbox, or to record new work; `retry_after` in seconds."""

    code = "capacity_exhausted"


class AuditUnavailableError(PaddockError):
    """The audit ledger cannot be written, so nothing new is done."""

    code = "audit_unavailable"


class EngineUnavailableError(PaddockError):
    """The container engine does not answer or refused; the call may be repeated."""

    code = "engine_unavailable"


class ClusterUnavailableError(PaddockError):
    """The cluster's database does not answer; what needs it is refused, the rest goes on.

    `retry_after` is in seconds.
    """

    code = "cluster_unavailable"

    def __init__(self, detail: str, **fields: Any) -> None:
        super().__init__(detail, **{"retry_after": _CLUSTER_RETRY_SECONDS, **fields})


class SignInUnavailableError(PaddockError):
    """The issuer of tokens does not answer, so nobody new can sign in; `retry_after` in seconds."""

    code = "sign_in_unavailable"


class NodeUnavailableError(PaddockError):
    """The machine where it is does not answer; `node` names it, `retry_after` is in seconds."""

    code = "node_unavailable"


class RecordedBeforeError(Exception):
    """It is already recorded, because an earlier attempt succeeded after it was given up."""
