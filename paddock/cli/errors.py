"""Makes of every failure one line with its remedy, and an exit status."""

import errno
from collections.abc import Mapping

from paddock.cli.exits import Failure, Status
from paddock.cli.server import server
from paddock.client import errors as client
from paddock.contract.remedies import REMEDIES as BY_RULE

_STATUSES: Mapping[str, Status] = {
    "validation_error": Status.USAGE,
    "misdirected_request": Status.USAGE,
    "unauthorized": Status.REFUSED,
    "permission_denied": Status.REFUSED,
    "not_found": Status.NOT_FOUND,
    "session_terminated": Status.NOT_FOUND,
    "busy": Status.TRY_LATER,
    "rate_limited": Status.TRY_LATER,
    "budget_exceeded": Status.REFUSED,
    "sandbox_unavailable": Status.TRY_LATER,
    "capacity_exhausted": Status.TRY_LATER,
    "audit_unavailable": Status.TRY_LATER,
    "engine_unavailable": Status.TRY_LATER,
    "cluster_unavailable": Status.TRY_LATER,
    "sign_in_unavailable": Status.TRY_LATER,
    "node_unavailable": Status.TRY_LATER,
}
REMEDIES: Mapping[str, str] = {
    "unauthorized": "set PADDOCK_KEY, or give --key-file FILE",
    "session_terminated": "its record is kept for a while: `paddock sessions show`",
    "budget_exceeded": "create a session with a larger budget: with the same id it gets the files",
    "invalid_transition": "`paddock sessions show SESSION` shows its status",
    "sandbox_unavailable": "try again; if that does not help, close the session",
    "capacity_exhausted": "close a session that is not needed: `paddock sessions list`",
    "audit_unavailable": "run `paddock doctor` where the control plane runs: is its disk full?",
    "engine_unavailable": "run `paddock doctor` where the control plane runs",
    "cluster_unavailable": "run `paddock cluster status` on a node: is its database there?",
    "sign_in_unavailable": "try again in a minute; the control plane's log says what is wrong",
    "node_unavailable": "`paddock nodes list` shows which nodes answer",
    "internal_error": "run `paddock doctor` where the control plane runs, and read its log",
}
# Missing objects, by how their message begins.
_MISSING: Mapping[str, str] = {
    "no session": "`paddock sessions list` shows what there is",
    "this session has no terminal": "`paddock ptys list SESSION` shows what there is",
    "this session has no command": "`paddock ps SESSION` shows what there is",
}
_SYSTEM_REMEDIES: Mapping[int, str] = {
    errno.ENOSPC: "the disk is full: free some space",
    errno.EDQUOT: "the disk quota is used up: free some space",
    errno.EACCES: "run it as a user who may, or choose another place",
    errno.EADDRINUSE: "set PADDOCK_LISTEN to a free address",
}


def explain(error: BaseException, traceback_variable: str) -> Failure:
    """The failure to show for an exception."""
    if isinstance(error, client.PaddockAPIError):
        return _refused(error)
    if isinstance(error, client.PaddockError):
        return _unanswered(error)
    if (known := server().explain(error)) is not None:
        return known
    if isinstance(error, OSError):
        return _system(error)
    return Failure(
        f"something failed in paddock itself: {type(error).__name__}: {error}",
        f"{traceback_variable}=1 shows where",
    )


def _refused(error: client.PaddockAPIError) -> Failure:
    status = _STATUSES.get(error.code, Status.FAILED)
    what = error.detail
    if error.rule is not None:
        # Most messages of rules already say what to do instead.
        remedy = None if "; " in what else _by_rule(error.rule)
        return Failure(f"refused by rule {error.rule}: {what}", remedy, status)
    if error.code == "rate_limited" and error.retry_after is not None:
        return Failure(what, f"try again in {error.retry_after:g} s", status)
    # A message that names a command already says what to do.
    remedy = None if "`" in what else REMEDIES.get(error.code)
    if error.code == "not_found":
        remedy = next((way for begin, way in _MISSING.items() if what.startswith(begin)), None)
    if error.code == "internal_error" and error.request_id is not None:
        remedy = f"the control plane's log has more under request {error.request_id}"
    return Failure(what, remedy, status)


def _by_rule(rule: str) -> str:
    """What to do instead, as part of the line."""
    text = BY_RULE.get(rule, "`paddock policies explain` tells more").rstrip(".")
    return text[:1].lower() + text[1:]


def _unanswered(error: client.PaddockError) -> Failure:
    what = str(error)
    if isinstance(error, client.OldServerError):
        return Failure(what, "upgrade the control plane, or use the paddock of its version")
    if isinstance(error, client.NotPaddockError):
        return Failure(what, "check --url or PADDOCK_URL", Status.UNREACHABLE)
    if isinstance(error, client.ApprovalPendingError):
        remedy = "run it again when it is approved, or with --wait"
        return Failure(str(error), remedy, Status.TRY_LATER)
    if isinstance(error, client.GitError):
        return Failure(error.what, error.remedy)
    if isinstance(error, client.ArgumentError):
        return Failure(what, status=Status.USAGE)
    if isinstance(error, client.LimitError):
        return Failure(what)
    remedy = "check --url or PADDOCK_URL; `paddock serve` starts a control plane here"
    if not isinstance(error, client.UnreachableError):
        remedy = "what was asked for may have been done: look before trying again"
    return Failure(what, remedy, Status.UNREACHABLE)


def _system(error: OSError) -> Failure:
    what = error.strerror or str(error)
    if error.filename is not None:
        what = f"{error.filename}: {what}"
    return Failure(what, _SYSTEM_REMEDIES.get(error.errno or 0))
