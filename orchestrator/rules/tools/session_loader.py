"""Reads manifests of interactive programs: a session, and every line that may be sent."""

import hashlib
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from orchestrator.rules.tools.arguments import Argument
from orchestrator.rules.tools.manifest import (
    CRITICAL,
    UNPARSED,
    Manifest,
    ToolCommand,
    declared_states,
)
from orchestrator.rules.tools.manifest_reader import (
    FieldError,
    cedar_names,
    check_kind,
    checked_pattern,
    evidence_name,
    read_as,
    read_bytes,
    typed_argument,
    values_of,
)
from orchestrator.rules.tools.patterns import Pattern
from orchestrator.rules.tools.schemas import UnusableSchemaError, check_result_schema
from orchestrator.rules.tools.tables import (
    ArgumentTable,
    CommandTable,
    InteractionTable,
    ManifestTable,
    SessionTable,
)

# No shell reads the command, so characters for a shell are a mistake.
_SHELL = frozenset(";|&`$\n\r")
_SQL_CLIENTS = frozenset({"psql", "mysql", "mariadb", "sqlite3"})
# Paths of the control plane, of the kernel, and of files that clients write.
_CLOSED = ("/proc", "/sys", "/run/paddock", "/workspace")


def load_manifest(path: Path) -> Manifest:
    """Reads a manifest's file. Raises: ManifestError."""
    return parse_manifest(read_bytes(path), str(path))


def parse_manifest(data: bytes, name: str) -> Manifest:
    """Parses a manifest's bytes; `name` is its name in messages. Raises: ManifestError."""
    values = values_of(data, name)
    return read_as(name, lambda: session_tool(values, data))


def session_tool(values: Mapping[str, Any], data: bytes) -> Manifest:
    """The tool of a session manifest's values. Raises: FieldError, and pydantic's errors."""
    check_kind(values)
    return _build(ManifestTable.model_validate(values), data)


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


def _ready(text: str) -> Pattern:
    field = "session.ready_pattern"
    pattern = checked_pattern(field, text)
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
    pattern = checked_pattern(f"{field}.pattern", table.pattern)
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
        yield checked_pattern(f'session.states."{text}"', text), state


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
