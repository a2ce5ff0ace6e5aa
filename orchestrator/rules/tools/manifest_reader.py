"""Reads manifest files, `*.clad.toml`, strictly: every error names file, field and reason."""

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError as TableError

from orchestrator.ground.config_error import ConfigError
from orchestrator.rules.tools.arguments import Argument
from orchestrator.rules.tools.manifest import CedarNames
from orchestrator.rules.tools.patterns import Pattern, PatternError, compile_pattern
from orchestrator.rules.tools.tables import ArgumentTable, CedarTable
from orchestrator.settings.operator_files import read_regular

T = TypeVar("T")

SUFFIX = ".clad.toml"
MAX_BYTES = 256 * 1024
_BOUNDED = frozenset({"integer", "number", "port"})
# The kinds that can be run, and the tables of other runtimes.
_KINDS = "a manifest has a table [command], or [session] for a terminal"
_ELSEWHERE = {"http": "requests over HTTP", "mcp": "tools of MCP servers"}


class ManifestError(ConfigError):
    """An unusable manifest; the message names the file, the field and the reason."""


class FieldError(ValueError):
    """A manifest's field, and why it can't be used."""

    def __init__(self, field: str, reason: object) -> None:
        super().__init__(f"{field}: {reason}")


def claimed_name(path: Path) -> str | None:
    """The `tool.name` of a file that may be broken elsewhere; None if it can't be determined."""
    try:
        name = tomllib.loads(read_bytes(path).decode())["tool"]["name"]
    except (ManifestError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return name if isinstance(name, str) else None


def read_bytes(path: Path) -> bytes:
    """A manifest's bytes, at most one more than the limit. Raises: ManifestError."""
    try:
        return read_regular(path, MAX_BYTES)
    except OSError as error:
        raise ManifestError(f"{path}: {error.strerror}") from None


def values_of(data: bytes, name: str) -> dict[str, Any]:
    """Parses a manifest's TOML. Raises: ManifestError."""
    if len(data) > MAX_BYTES:
        raise ManifestError(f"{name}: has more than {MAX_BYTES} bytes")
    try:
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"{name}: is not TOML: {error}") from None


def read_as(name: str, build: Callable[[], T]) -> T:
    """Applies `build` to a manifest's values. Raises: ManifestError for its errors."""
    try:
        return build()
    except TableError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ManifestError(f"{name}: {_described(first['loc'], first['msg'])}") from None
    except FieldError as error:
        raise ManifestError(f"{name}: {error}") from None
    except RecursionError:
        raise ManifestError(f"{name}: is nested too deeply") from None


def check_kind(values: Mapping[str, Any]) -> None:
    """Reports an unsupported kind first, because it explains missing fields. Raises: FieldError."""
    tool = values.get("tool")
    if not isinstance(tool, dict):
        raise FieldError("tool", "is missing: a manifest has a table [tool]")
    mode = tool.get("mode", "session" if "session" in values else "oneshot")
    if mode == "browser":
        raise FieldError("tool.mode", f"is browser, which can't be run: {_KINDS}")
    if tool.get("dispatch") == "callback":
        raise FieldError("tool.dispatch", f"is callback, which can't be run: {_KINDS}")
    for table, what in _ELSEWHERE.items():
        if table in values:
            raise FieldError(table, f"{what} can't be run: {_KINDS}")
    if mode == "oneshot" and "session" in values:
        reason = "is oneshot, but there is a table [session]: remove one of them"
        raise FieldError("tool.mode", reason)
    if mode == "oneshot" and "command" not in values:
        raise FieldError("command", f"is missing, as is [session]: {_KINDS}")
    command = values.get("command")
    if isinstance(command, dict) and "executor" in command:
        reason = "a script on the host would run outside every sandbox: use template or exec"
        raise FieldError("command.executor", reason)
    if mode == "session" and "session" not in values:
        raise FieldError("session", 'is missing: mode = "session" needs a table [session]')
    if "output" not in values:
        raise FieldError("output", "is missing: a manifest has a table [output]")


def cedar_names(table: CedarTable) -> CedarNames:
    """The names of a tool in Cedar policies."""
    return CedarNames(table.resource, table.action, table.principal)


def evidence_name(output_dir: str | None) -> str | None:
    """The additional name of evidence in a manifest, with `{session_id}` in it."""
    if output_dir is None:
        return None
    name = output_dir.removeprefix("{evidence_dir}/").rstrip("/")
    return name.replace("{scan_id}", "{session_id}")


def typed_argument(field: str, name: str, table: ArgumentTable) -> Argument:
    """An argument of its type. Raises: FieldError for members that the type does not have."""
    kind = table.type
    goes_with = (
        ("allowed", bool(table.allowed), kind == "enum", kind == "enum"),
        ("schemes", bool(table.schemes), kind == "url", False),
        ("pattern", bool(table.pattern), kind in ("string", "regex_match"), kind == "regex_match"),
        ("min", table.min is not None, kind in _BOUNDED, False),
        ("max", table.max is not None, kind in _BOUNDED, False),
        ("scope_check", table.scope_check, kind == "url", False),
        ("bind", table.bind, kind == "path", False),
    )
    for member, given, possible, needed in goes_with:
        if given and not possible:
            raise FieldError(f"{field}.{member}", f"does not go with type {kind}")
        if needed and not given:
            raise FieldError(f"{field}.{member}", f"is missing: type {kind} needs it")
    if table.min is not None and table.max is not None and table.min > table.max:
        raise FieldError(f"{field}.min", "is more than max")
    return Argument(
        name=name,
        type=kind,
        required=table.required,
        min=table.min,
        max=table.max,
        allowed=tuple(table.allowed),
        schemes=tuple(table.schemes),
        scope_check=table.scope_check,
        bind=table.bind,
        description=table.description,
        pattern=None
        if table.pattern is None
        else checked_pattern(f"{field}.pattern", table.pattern),
    )


def checked_pattern(field: str, text: str) -> Pattern:
    """Compiles a field's pattern. Raises: FieldError."""
    try:
        return compile_pattern(text)
    except PatternError as error:
        raise FieldError(field, error) from None


def _described(location: tuple[int | str, ...], message: str) -> str:
    field = ".".join(str(part) for part in location if part != "[key]")
    if message == "Field required":
        return f"{field}: is missing"
    if message.startswith("Extra inputs"):
        return f"{field}: is not a known field"
    if " should " in message:
        message = "must " + message.split(" should ", 1)[1]
    return f"{field}: {message}"
