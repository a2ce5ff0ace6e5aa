"""Errors as the client of SWE-ReX raises them again: exceptions by the path of their class.

A refusal is a `SwerexException` with the rule and what to do instead. Only a credential that does
not suffice and a malformed request have a status of HTTP's own.
"""

from typing import Any

from aiohttp import web

from api.compat.replies import explained, json_reply, retry_headers, sentence
from orchestrator.ground.errors import PaddockError, UnauthorizedError, ValidationError
from orchestrator.ground.log_context import cut_known

_STATUS = 511
_EXCEPTIONS = "swerex.exceptions."


# Characters of a text that a message quotes.
_MOST_QUOTED = 16 * 1024
# Characters of a text that an error has besides its message.
_MOST_EXTRA = 256 * 1024


def quoted(text: str) -> str:
    """The text as Python writes it; of a long one, its end."""
    if len(text) <= _MOST_QUOTED:
        return repr(text)
    return f"[{len(text) - _MOST_QUOTED} characters are left out]{text[-_MOST_QUOTED:]!r}"


class SwerexError(PaddockError):
    """An exception of the client, by the path of its class."""

    code = "swerex"

    def __init__(self, class_path: str, message: str, **extra_info: Any) -> None:
        super().__init__(message)
        self.class_path = class_path
        self.extra_info = extra_info


def exception(name: str, message: str, **extra_info: Any) -> SwerexError:
    """One of the exceptions of SWE-ReX."""
    return SwerexError(_EXCEPTIONS + name, message, **extra_info)


def builtin(name: str, message: str) -> SwerexError:
    """One of the exceptions of Python."""
    return SwerexError(f"builtins.{name}", message)


def failure(error: PaddockError, request_id: str) -> web.Response:
    """The response to an error."""
    problem = explained(error, request_id)
    headers = retry_headers(error)
    if isinstance(error, UnauthorizedError):
        return json_reply({"detail": sentence(problem)}, 403)
    if isinstance(error, ValidationError):
        return json_reply({"detail": sentence(problem)}, 422)
    if isinstance(error, SwerexError):
        transfer = _transfer(error.class_path, cut_known(error.detail), _cut(error.extra_info))
    else:
        transfer = _transfer(f"{_EXCEPTIONS}SwerexException", sentence(problem), problem)
    return json_reply({"swerexception": transfer}, _STATUS, headers)


def _transfer(class_path: str, message: str, extra_info: dict[str, Any]) -> dict[str, Any]:
    return {
        "message": message,
        "class_path": class_path,
        "traceback": "",
        "extra_info": extra_info,
    }


def _cut(members: dict[str, Any]) -> dict[str, Any]:
    """Without secrets; of long texts, the end."""
    return {
        name: cut_known(value)[-_MOST_EXTRA:] if isinstance(value, str) else value
        for name, value in members.items()
    }
