"""Reads manifest files, `*.clad.toml`, strictly: every error names file, field and reason."""

import hashlib
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from pydantic import ValidationError as TableError

from orchestrator.ground.config_error import ConfigError
from orchestrator.rules.tools.arguments import Argument
from orchestrator.rules.tools.manifest import (
    CRITICAL,
    UNPARSED,
    CedarNames,
    Manifest,
    ToolCommand,
    declared_states,
)
from orchestrator.rules.tools.patterns import Pattern, PatternError, compile_pattern
from orchestrator.rules.tools.schemas import UnusableSchemaError, check_result_schema
from orchestrator.rules.tools.tables import (
    ArgumentTable,
    CedarTable,
    CommandTable,
    InteractionTable,
    ManifestTable,
    SessionTable,
)
from orchestrator.settings.operator_files import read_regular

T = TypeVar("T")

SUFFIX = ".clad.toml"
MAX_BYTES = 256 * 1024
# No shell reads the command, so characters for a shell are a mistake.
_SHELL = frozenset(";|&`$\n\r")
_SQL_CLIENTS = frozenset({"psql", "mysql", "mariadb", "sqlite3"})
_BOUNDED = frozenset({"integer", "number", "port"})
# The kinds that can be run, and the tables of other runtimes.
_KINDS = "a manifest has a table [command], or [session] for a terminal"
_ELSEWHERE = {"http": "requests over HTTP", "mcp": "tools of MCP servers"}
# Paths of the control plane, of the kernel, and of files that clients write.
_CLOSED = ("/proc", "/sys", "/run/paddock", "/workspace")


class ManifestError(ConfigError):
    """An unusable manifest; the message names the file, the field and the reason."""


class FieldError(ValueError):
    """A manifest's field, and why it can't be used."""

    def __init__(self, field: str, reason: object) -> None:
        super().__init__(f"{field}: {reason}")


def load_manifest(path: Path) -> Manifest:
    """Reads a manifest's file. Raises: ManifestError."""
    return parse_manifest(read_bytes(path), str(path))


def claimed_name(path: Path) -> str | None:
    """The `tool.name` of a file that may be broken elsewhere; None if it can't be determined."""
    try:
        name = tomllib.loads(read_bytes(path).decode())["tool"]["name"]
    except (ManifestError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return name if isinstance(name, str) else None


def parse_manifest(data: bytes, name: str) -> Manifest:
    """Parses a manifest's bytes; `name` is its name in messages. Raises: ManifestError."""
    values = values_of(data, name)
    return read_as(name, lambda: session_tool(values, data))


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


def session_tool(values: Mapping[str, Any], data: bytes) -> Manifest:
    """The tool of a session manifest's values. Raises: FieldError, and pydantic's errors."""
    check_kind(values)
    return _build(ManifestTable.model_validate(values), data)


def read_bytes(path: Path) -> bytes:
    """A manifest's bytes, at most one more than the limit. Raises: ManifestError."""
    try:
        return read_regular(path, MAX_BYTES)
    except OSError as error:
        raise ManifestError(f"{path}: {error.strerror}") from None


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


def _build(table: ManifestTable, data: bytes) -> Manifest:
    tool, session = table.tool, table.session
    schema = table.output.schema_
    _check_schema(schema)
    _check_parser(session.interaction)
    commands = {
        name: _command(name, command, tool.human_approval, session.interaction.dialect)
        for name, command in session.commands.items()
    }
    return Manifest(
        name=tool.name,
        description=tool.description,
        risk_tier=tool.risk_tier,
        version=tool.version,
        cedar=None if tool.cedar is None else cedar_names(tool.cedar),
        startup_command=session.startup_command,
        argv=_argv(session.startup_command, tool.binary),
        ready_pattern=_ready(session.ready_pattern),
        startup_timeout_seconds=session.startup_timeout_seconds,
        idle_timeout_seconds=session.idle_timeout_seconds,
        session_timeout_seconds=session.session_timeout_seconds,
        max_interactions=session.max_interactions,
        sanitize_injection="injection" in session.interaction.input_sanitize,
        output_max_bytes=session.interaction.output_max_bytes,
        output_wait_ms=session.interaction.output_wait_ms,
        line_terminator=_terminator(session),
        dialect=session.interaction.dialect,
        states=tuple(_states(session, commands, schema)),
        commands=commands,
        capture=tool.evidence.capture,
        evidence_name=evidence_name(tool.evidence.output_dir),
        output_schema=schema,
        allow_ptrace=session.allow_ptrace,
        mounts=tuple(session.mounts),
        env=_environment(session.env),
        read=_paths("read", session.confinement.read),
        execute=_paths("execute", session.confinement.execute),
        writable_code=session.confinement.writable_code,
        sha256=hashlib.sha256(data).hexdigest(),
        source=data.decode(),
    )


def cedar_names(table: CedarTable) -> CedarNames:
    """The names of a tool in Cedar policies."""
    return CedarNames(table.resource, table.action, table.principal)


def _argv(command: str, binary: str | None) -> tuple[str, ...]:
    field = "session.startup_command"
    try:
        argv = tuple(shlex.split(command))
    except ValueError as error:
        raise FieldError(field, f"can't be split into words: {error}") from None
    if not argv or not argv[0]:
        raise FieldError(field, "is empty")
    for word in argv:
        if found := sorted(_SHELL.intersection(word)):
            character = repr(found[0])[1:-1]
            raise FieldError(field, f"{character} may not be in it: no shell runs it")
        if "\0" in word:
            raise FieldError(field, "NUL may not be in it")
    program = PurePosixPath(argv[0]).name
    if binary is not None and program != binary:
        raise FieldError("tool.binary", f"is {binary}, but the startup command runs {program}")
    return argv


def _terminator(session: SessionTable) -> str:
    """The end of each line: SQL clients read on until a semicolon."""
    given = session.interaction.line_terminator
    if given is not None:
        return given
    program = PurePosixPath(shlex.split(session.startup_command)[0]).name
    return ";\n" if program in _SQL_CLIENTS else "\n"


def evidence_name(output_dir: str | None) -> str | None:
    """The additional name of evidence in a manifest, with `{session_id}` in it."""
    if output_dir is None:
        return None
    name = output_dir.removeprefix("{evidence_dir}/").rstrip("/")
    return name.replace("{scan_id}", "{session_id}")


def _ready(text: str) -> Pattern:
    field = "session.ready_pattern"
    pattern = _pattern(field, text)
    if pattern.matches(""):
        raise FieldError(field, "matches the empty string: everything would look like a prompt")
    return pattern


def _check_parser(interaction: InteractionTable) -> None:
    if (interaction.parser is None) != (interaction.dialect is None):
        field = "dialect" if interaction.dialect is None else "parser"
        raise FieldError(
            f"session.interaction.{field}", "is missing: parser and dialect need each other"
        )


def _check_statements(field: str, table: CommandTable, dialect: str | None) -> None:
    for member, given in (("statements", table.statements), ("functions", table.functions)):
        if given and dialect is None:
            raise FieldError(f"{field}.{member}", "needs session.interaction.parser")
    if dialect is not None and not table.statements:
        raise FieldError(f"{field}.statements", "is missing: session.interaction.parser needs it")
    if UNPARSED in table.statements and (len(table.statements) > 1 or table.functions):
        raise FieldError(f"{field}.statements", f"{UNPARSED} stands alone")


def _command(
    name: str, table: CommandTable, human_approval: bool, dialect: str | None
) -> ToolCommand:
    field = f"session.commands.{name}"
    _check_statements(field, table, dialect)
    pattern = _pattern(f"{field}.pattern", table.pattern)
    return ToolCommand(
        name=name,
        pattern=pattern,
        description=table.description,
        risk_tier=table.risk_tier,
        human_approval=table.human_approval or human_approval or table.risk_tier == CRITICAL,
        extract_target=table.extract_target,
        state=table.state,
        args=tuple(
            _argument(f"{field}.args.{arg}", arg, argument, pattern)
            for arg, argument in table.args.items()
        ),
        statements=tuple(table.statements),
        functions=tuple(table.functions),
    )


def _argument(field: str, name: str, table: ArgumentTable, command: Pattern) -> Argument:
    if name not in command.names:
        raise FieldError(field, f"the command's pattern has no group (?P<{name}>…)")
    return typed_argument(field, name, table)


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
        pattern=None if table.pattern is None else _pattern(f"{field}.pattern", table.pattern),
    )


def _states(
    session: SessionTable, commands: Mapping[str, ToolCommand], schema: Mapping[str, Any] | None
) -> Iterator[tuple[Pattern, str]]:
    known = declared_states(schema)
    fields = [(f'session.states."{text}"', state) for text, state in session.states.items()]
    fields += [(f"session.commands.{n}.state", c.state) for n, c in commands.items() if c.state]
    for field, state in fields:
        if known is not None and state not in known:
            raise FieldError(field, f"{state} is not in the enum of output.schema's session_state")
    for text, state in session.states.items():
        yield _pattern(f'session.states."{text}"', text), state


def _check_schema(schema: Mapping[str, Any] | None) -> None:
    if schema is None:
        return
    try:
        check_result_schema(schema)
    except UnusableSchemaError as error:
        raise FieldError("output.schema", error) from None


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if "\0" in value:
            raise FieldError(f"session.env.{name}", "NUL may not be in it")
        # The loader would run the files that they name before the program itself.
        if name.startswith("LD_"):
            raise FieldError(f"session.env.{name}", "variables of the dynamic loader can't be set")
    return dict(env)


def _paths(name: str, paths: list[str]) -> tuple[str, ...]:
    for path in paths:
        if {".", ".."} & set(path.split("/")):
            raise FieldError(f"session.confinement.{name}", f"{path}: . and .. may not be in it")
        if any(PurePosixPath(path).is_relative_to(closed) for closed in _CLOSED):
            raise FieldError(f"session.confinement.{name}", f"{path} can't be opened by a tool")
    return tuple(paths)


def _pattern(field: str, text: str) -> Pattern:
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
