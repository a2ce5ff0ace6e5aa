"""One line of the log for each record: JSON or for people, without secrets."""

import json
import logging
import re
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import Any

import structlog

from orchestrator.ground.events import time_text
from orchestrator.ground.log_context import cut_known, known_fields

REDACTED = "[redacted]"
_DEEPEST = 6
_SECRET = re.compile(
    r"pdk_[\w-]+|H-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<=bearer )\s*[^\s'\",]+",
    re.IGNORECASE,
)
_SECRET_NAMES = frozenset(
    {"authorization", "admin_key", "api_key", "handle", "key", "lease_id", "password", "secret"}
    | {"secrets", "token", "cookie"}
)
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
# What every record has; further attributes are fields of the line.
_USUAL = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_ENCODER = json.JSONEncoder()

# The names and values of a line.
Fields = dict[str, Any]


def make_formatter(
    kind: str, *, colours: bool = False, secrets: Collection[str] = ()
) -> logging.Formatter:
    """Makes a formatter; `kind` is json or console, and `secrets` are further texts to remove."""
    if kind == "json":
        return LineFormatter(secrets, _ENCODER.encode)
    console = structlog.dev.ConsoleRenderer(colors=colours, timestamp_key="time")
    return LineFormatter(secrets, lambda fields: console(None, "", _escape_controls(fields)))


class LineFormatter(logging.Formatter):
    """Formats a record in its context: each step does its work once for the whole line."""

    def __init__(self, secrets: Collection[str], render: Callable[[Fields], str]) -> None:
        super().__init__()
        self._redaction = Redaction(secrets)
        self._render = render

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        return self._render(self._redaction.cut(self._fields(record)))

    def _fields(self, record: logging.LogRecord) -> Fields:
        fields: Fields = {
            "event": record.getMessage(),
            **known_fields(),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        fields |= {name: value for name, value in record.__dict__.items() if name not in _USUAL}
        fields["time"] = time_text(datetime.fromtimestamp(record.created, UTC))
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return fields


class Redaction:
    """Removes keys, handles, sessions' secrets and values with secret-like names from a record.

    The session secrets are those that the record's context knows.
    """

    def __init__(self, secrets: Collection[str] = ()) -> None:
        self._secrets = tuple(secrets)

    def cut(self, fields: Fields) -> Fields:
        """The record without secrets."""
        if self._has_none(fields):
            return fields
        return {name: self._clean(name, value, _DEEPEST) for name, value in fields.items()}

    def _has_none(self, fields: Fields) -> bool:
        """Whether one search over all texts together shows that nothing is to be removed.

        That is so for almost every record, and costs less than a search over each text.
        """
        texts = []
        for name, value in fields.items():
            if isinstance(value, str) and name.lower() not in _SECRET_NAMES:
                texts.append(value)
            elif not _is_plain(value):
                return False
        joined = "\0".join(texts)
        return self._text(joined) == joined

    def _clean(self, name: str, value: Any, depth: int) -> Any:
        if _is_plain(value):
            return value
        if name.lower() in _SECRET_NAMES or depth == 0:
            return REDACTED
        if isinstance(value, dict):
            items = value.items()
            return {self._text(str(k)): self._clean(str(k), v, depth - 1) for k, v in items}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._clean("", item, depth - 1) for item in value]
        return self._text(value if isinstance(value, str) else repr(value))

    def _text(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        text = cut_known(text)
        return _SECRET.sub(REDACTED, text)


def _is_plain(value: Any) -> bool:
    """Whether the value can contain no secret."""
    return value is None or isinstance(value, bool | int | float)


def _escape_controls(fields: Fields) -> Fields:
    """Escapes controls, so that input can't control a terminal or forge a log line."""
    return {
        name: _shown(value, keep_lines=name == "exception") if isinstance(value, str) else value
        for name, value in fields.items()
    }


def _shown(text: str, *, keep_lines: bool) -> str:
    text = text.translate(_CONTROL)
    return text if keep_lines else text.replace("\n", "\\n")
