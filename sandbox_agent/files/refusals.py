"""Errors of the operating system as answers to a caller. Runs in a file worker."""

import errno
import os

from sandbox_agent.decide.errors import AgentError


def refusal(error: OSError, path: str) -> AgentError:
    """Translates an operating system error for the caller."""
    number = error.errno or errno.EIO
    if number in (errno.EXDEV, errno.ELOOP):
        return AgentError(
            "permission_denied", f"path escapes workspace: {path}", "path-outside-workspace"
        )
    code = _CODES.get(number, "conflict")
    rule = "file-permissions" if code == "permission_denied" else None
    return AgentError(code, f"{os.strerror(number)}: {path}", rule)


_CODES = {
    errno.ENOENT: "not_found",
    errno.EACCES: "permission_denied",
    errno.EPERM: "permission_denied",
    errno.ENAMETOOLONG: "validation_error",
    errno.EINVAL: "validation_error",
    errno.EFBIG: "too_large",
    errno.ENOSPC: "too_large",
    errno.EDQUOT: "too_large",
}
