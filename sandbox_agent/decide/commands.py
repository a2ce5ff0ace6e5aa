"""Decides from a command's words alone whether it may run: allowlist, options and paths.

Nothing here reads the file system, so symbolic links are not followed. The boundary is what the
mounts and the kernel enforce; these rules only explain a refusal early and clearly.
"""

import posixpath
import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from sandbox_agent.decide import curl, operands
from sandbox_agent.decide.command_words import CommandError, printable
from sandbox_agent.decide.options import (
    COPY,
    MOVE,
    READ,
    SAFE,
    SEARCH,
    URL,
    VALUES,
    WRITE,
    Parsed,
    Table,
    parse_find,
    parse_options,
)
from sandbox_agent.decide.writable_places import places

WORKSPACE = "/workspace"


class Decision(NamedTuple):
    """Whether an action is allowed; `rule` is a stable id, `message` is one sentence."""

    allow: bool
    rule: str
    message: str


# These act on a symbolic link itself, not on its target.
_LEAVES_LINKS = frozenset({"find", "mv", "rm", "stat"})
_OURS = {"cp": ["--remove-destination"], "curl": ["-q"]}
_ALLOWED = Decision(True, "allowed", "allowed")
# An absolute path that begins with any number of `/`, `.` and `..` is still at the root.
_ROOT = re.compile(r"/(?:\.{0,2}/)*")


def decide(
    argv: Sequence[str],
    commands: Collection[str] | None,
    workspace: str = WORKSPACE,
    cwd: str = WORKSPACE,
    *,
    level: str | None = None,
    guard_writes: bool = True,
    mounts: Sequence[str] = (),
    volumes: Sequence[str] = (),
) -> Decision:
    """Decides whether `argv` may run in `cwd`, an absolute path.

    If `commands` is a collection, only these names may run, with options known to be safe and on
    paths in the workspace and in `volumes`, the places of the session's volumes. A command without
    an option table is accepted as it is. If `commands` is None, any command may run; with
    `guard_writes`, commands that are known to write may write only where the kernel lets them:
    `mounts` are the targets of the session's writable mounts, with its writable volumes.

    Raises:
        CommandError: The command is empty, or cp or mv lacks a source or destination.
    """
    if not argv or not argv[0]:
        raise CommandError("command is empty")
    if commands is None:
        return _decide_any(argv, workspace, cwd, mounts) if guard_writes else _ALLOWED
    written = [volume for volume in volumes if volume in mounts]
    tops = _Tops([workspace, *volumes], [workspace, *written])
    return _decide_listed(argv, commands, tops, cwd, level)


class _Tops(NamedTuple):
    """The directories in which a command may read, and those in which it may write."""

    reads: Sequence[str]
    writes: Sequence[str]


def _decide_listed(
    argv: Sequence[str],
    commands: Collection[str],
    tops: _Tops,
    cwd: str,
    level: str | None,
) -> Decision:
    name = argv[0]
    if name not in commands:
        where = f"permission level {level}" if level else "this permission level"
        return _deny(
            "command-allowlist",
            f"command not allowed for {where}: {printable(name)}; "
            f"allowed are, by bare name: {' '.join(sorted(commands))}",
        )
    table = SAFE.get(name)
    if table is None:
        return _ALLOWED
    parsed = parse_find(argv[1:]) if name == "find" else parse_options(argv[1:], table)
    if parsed.refused is not None:
        return _deny(
            "option-not-allowed",
            f"option not allowed for {name}: {printable(parsed.refused)}; at this level an option "
            "must be spelled out and be known to run, read and write nothing else",
        )
    refused = operands.refusal(name, table, parsed)
    if refused is not None:
        rule, text, culprit = refused
        return _deny(rule, f"{text}: {printable(culprit)}")
    reads, writes = _paths(name, table, parsed)
    outside = _first_outside(reads, tops.reads, cwd)
    allowed = tops.reads
    if outside is None:
        outside, allowed = _first_outside(writes, tops.writes, cwd), tops.writes
    if outside is None:
        return _ALLOWED
    return _deny(
        "path-outside-workspace",
        "path escapes workspace under current permission level: "
        f"{printable(outside)}; use a path under {' or '.join(allowed)}",
    )


def _decide_any(argv: Sequence[str], workspace: str, cwd: str, mounts: Sequence[str]) -> Decision:
    name = posixpath.basename(argv[0]) if _is_system_path(argv[0]) else argv[0]
    table = VALUES.get(name)
    if table is None:
        return _ALLOWED
    parsed = parse_options(argv[1:], table, lenient=True)
    _, writes = _paths(name, table, parsed)
    *most, last = tops = (workspace, *places(None, mounts))
    plain = ((path, resolve(path, cwd)) for path in writes)
    outside = next(
        (path for path, real in plain if not any(_inside(real, top) for top in tops)), None
    )
    if outside is None:
        return _ALLOWED
    text = (
        "cp destination must stay inside workspace"
        if name == "cp"
        else "write path escapes workspace"
    )
    return _deny(
        "write-outside-workspace",
        f"{text}: {printable(outside)}; use a path under {', '.join(most)} or {last}",
    )


def _is_system_path(name: str) -> bool:
    return posixpath.dirname(name) in {"/bin", "/usr/bin"}


def _paths(name: str, table: Table, parsed: Parsed) -> tuple[list[str], list[str]]:
    """The paths that the command reads and those that it writes. Raises: CommandError."""
    words = parsed.operands
    if table.operands == READ:
        return words, []
    if table.operands == SEARCH:
        return (words if parsed.values("e", "regexp") else words[1:]), []
    if table.operands == WRITE:
        return [], words
    if table.operands in {COPY, MOVE}:
        sources, destinations = _sources_and_destinations(name, parsed)
        if table.operands == COPY:
            return sources, destinations
        return [], [*sources, *destinations]
    if table.operands == URL:
        return [], curl.written(parsed)
    return [], []


def _sources_and_destinations(name: str, parsed: Parsed) -> tuple[list[str], list[str]]:
    words = parsed.operands
    target = parsed.values("t", "target-directory")
    if target:
        return words, target
    if any(option in {"help", "version"} for option, _ in parsed.options):
        return words, []
    if len(words) < 2:
        raise CommandError(f"{name} requires source and destination")
    return words[:-1], words[-1:]


def _first_outside(paths: list[str], tops: Sequence[str], cwd: str) -> str | None:
    return next(
        (path for path in paths if not any(_stays_inside(path, top, cwd) for top in tops)), None
    )


def _stays_inside(path: str, top: str, cwd: str) -> bool:
    """Whether `path` is in the directory and reaches it without leaving it first.

    A directory outside may be a link. A `..` after it then leads to another place than the text
    says.
    """
    return _inside(resolve(path, cwd), top) and _inside(_literal(path, cwd), top)


def _literal(path: str, cwd: str) -> str:
    """The absolute form of `path`, with `..` and repeated slashes left for the kernel."""
    return _ROOT.sub("/", posixpath.join(cwd, path), count=1)


def resolve(path: str, cwd: str) -> str:
    """The absolute form of `path` relative to `cwd`, from the text alone: no link is followed."""
    absolute = posixpath.normpath(posixpath.join(cwd, path))
    # POSIX leaves the meaning of exactly two leading slashes open. On Linux they mean one.
    return absolute[1:] if absolute.startswith("//") else absolute


def paths_to_resolve(
    argv: Sequence[str],
    commands: Collection[str] | None,
    workspace: str = WORKSPACE,
    cwd: str = WORKSPACE,
) -> list[tuple[str, bool]]:
    """The paths of an allowed command that must stay in permitted places once links are followed.

    Each path is relative to the workspace, exactly as it will be resolved. The flag beside it is
    true if the command follows a link in the last component. Where any command is allowed, only
    written paths are returned; a path in another permitted place is absolute. Raises: CommandError.
    """
    name = argv[0]
    if commands is None:
        name = posixpath.basename(name) if _is_system_path(name) else name
        table, lenient = VALUES.get(name), True
    else:
        table, lenient = SAFE.get(name), False
    if table is None:
        return []
    if name == "find":
        parsed = parse_find(argv[1:])
    else:
        parsed = parse_options(argv[1:], table, lenient=lenient)
    reads, writes = _paths(name, table, parsed)
    checked = writes if commands is None else [*reads, *writes]
    follows = [name not in _LEAVES_LINKS] * len(checked)
    if table.operands == MOVE:
        follows[-1:] = [True]  # mv moves into the directory that its destination leads to
    return [
        (_beneath(path, workspace, cwd), follow)
        for path, follow in zip(checked, follows, strict=True)
    ]


def path_intents(argv: Sequence[str]) -> tuple[list[str], list[str]] | None:
    """The paths that a command would read and write, spelled as in the command.

    Returns None for commands without an option table. The result is for information only, as it
    misses paths in unknown options. Raises: CommandError.
    """
    name = posixpath.basename(argv[0]) if _is_system_path(argv[0]) else argv[0]
    table = VALUES.get(name) or SAFE.get(name)
    if table is None:
        return None
    find = name == "find"
    parsed = parse_find(argv[1:]) if find else parse_options(argv[1:], table, lenient=True)
    return _paths(name, table, parsed)


def _beneath(path: str, workspace: str, cwd: str) -> str:
    """An allowed `path` relative to the workspace, or absolute if it is in another place."""
    literal = _literal(path, cwd)
    if not _inside(literal, workspace):
        return literal
    return literal.removeprefix(workspace).lstrip("/") or "."


def _inside(path: str, workspace: str) -> bool:
    return path == workspace or path.startswith(workspace + "/")


def normalize_cwd(cwd: str, workspace: str = WORKSPACE, *, anywhere: bool = False) -> str:
    """The absolute form of a working directory given absolute or relative to the workspace.

    Raises:
        CommandError: The path has a NUL, or leaves the workspace without `anywhere`.
    """
    if "\0" in cwd:
        raise CommandError("cwd has a NUL character")
    path = resolve(cwd, workspace)
    if not anywhere and not _inside(path, workspace):
        raise CommandError(f"cwd must stay under {workspace}: {printable(cwd)}")
    return path


def prepare(argv: Sequence[str], commands: Collection[str] | None) -> list[str]:
    """The argv to execute: where commands are listed, some commands get an extra option.

    curl reads no configuration file. cp removes a file before it replaces it: otherwise it could
    write through a link in the destination that has the same name as a source.
    """
    ours = _OURS.get(argv[0], []) if commands is not None else []
    return [argv[0], *ours, *argv[1:]]


def _deny(rule: str, message: str) -> Decision:
    return Decision(False, rule, message)
