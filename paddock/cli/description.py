"""Describes audit events for people, each on one line. Pure."""

import shlex
from collections.abc import Mapping
from typing import Any

_MOST_CHARACTERS = 400


def summary(event: Mapping[str, Any]) -> str:
    """The subject of an event: the command, its exit, the path, the new status.

    Behind it, in brackets, is the name of the request of a foreign protocol that asked for it.
    """
    args, result = dict(event.get("args") or {}), event.get("result") or {}
    asked_as = args.pop("asked_as", None)
    text = _subject(str(event.get("operation")), args, result)
    error = event.get("error")
    if error and str(error) not in text:
        text = f"{text}: {error}" if text else str(error)
    shown = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
    return shown if asked_as is None else f"{shown} [{asked_as}]".lstrip()


def _subject(operation: str, args: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    kind = operation.partition(".")[0]
    if operation in ("command.start", "command.exec"):
        argv = args.get("argv")
        return words(argv) if isinstance(argv, list) else _members(args)
    if operation == "command.exit":
        return _exit(result)
    if kind == "file":
        paths = [str(args[name]) for name in ("path", "source", "destination") if name in args]
        count = f" ({result['bytes']} bytes)" if "bytes" in result else ""
        return " → ".join(paths) + count
    if kind == "approval":
        status = result.get("status")
        return f"{args.get('tool')}: {args.get('command')}" + (f": {status}" if status else "")
    if operation == "session.terminated":
        return _members(result or args)
    return _members(args)


def words(argv: list[Any]) -> str:
    """A command's words, quoted where a shell would need it."""
    return shlex.join(str(word) for word in argv)


def outcome(result: Mapping[str, Any]) -> str:
    """The outcome of a command: `exit 0`, `SIGKILL, oom`, `timed out`."""
    code, reason = result.get("exit_code"), result.get("reason")
    if result.get("timed_out"):
        return "timed out"
    if code is None and not result.get("signal"):
        return str(reason or "end unknown")
    text = str(result.get("signal") or f"exit {code}")
    return f"{text}, {reason}" if reason else text


def _exit(result: Mapping[str, Any]) -> str:
    text = outcome(result)
    if result.get("leftover_killed"):
        text += f", {result['leftover_killed']} left-over processes killed"
    return text


def _members(values: Mapping[str, Any]) -> str:
    """Non-empty members as `name=value`."""
    return " ".join(
        f"{name}={_value(value)}" for name, value in values.items() if value not in (None, [], {})
    )


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(_value(item) for item in value)
    if isinstance(value, Mapping):
        return ",".join(f"{name}:{_value(item)}" for name, item in value.items())
    return str(value)
