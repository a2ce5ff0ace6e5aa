"""What would stop a command below the parser, even if the parser let it through.

It is said by the command's words alone. What a program does inside, and where links lead, only
the kernel sees: it may stop more than is told here. Pure.
"""

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.policy import known_commands
from orchestrator.policy.levels import Level
from sandbox_agent.baseline import BASELINE, DEVICES
from sandbox_agent.commands import WORKSPACE, CommandError, path_intents, resolve

Layer = Literal["parser", "mount", "landlock", "seccomp", "network"]

_TMP = "/tmp"  # noqa: S108 - the sandbox's
_OWN = (WORKSPACE, _TMP)
_PROGRAMS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
# Not part of the image, and so not of its read-only file system.
_KERNEL = ("/dev", "/proc", "/sys")
# They have no table of options, and print their words, or write where an absolute one says.
_PRINT = frozenset({"echo", "printf"})
_WRITE = frozenset({"chmod", "chown", "dd", "install", "ln", "rmdir", "tee", "truncate"})


@dataclass(frozen=True, slots=True)
class Stop:
    """What a layer would do; `remedy` is how to do it otherwise, or how to allow it."""

    layer: Layer
    message: str
    remedy: str


def command_stops(level: Level, words: Sequence[str], cwd: str) -> list[Stop]:
    """What stops a command, in the order in which it would; `cwd` is absolute."""
    return [
        *_program(level, words[0], cwd),
        *_paths(level, words, cwd),
        *_calls(level, words),
        *_network(level, words),
    ]


def path_stops(level: Level, path: str) -> list[Stop]:
    """What stops a command that reads or writes a path, relative to the workspace or absolute."""
    absolute = resolve(path, WORKSPACE)
    # What can't be read can't be written either, by the same layer.
    stops = {stop.layer: stop for stop in (*_written(level, absolute), *_read(level, absolute))}
    return list(stops.values())


def _program(level: Level, name: str, cwd: str) -> Iterator[Stop]:
    path = resolve(name, cwd) if "/" in name else None
    own = path is not None and _within(path, _OWN)
    if own and level.noexec:
        yield Stop(
            "mount",
            f"the workspace and /tmp are mounted noexec: {_short(name)} can't be executed",
            "Run it by an interpreter that the level has, or set `noexec = false` in the level's "
            "file.",
        )
    if level.confinement.paths and not _executable(level, path or name):
        yield Stop(
            "landlock",
            f"the kernel executes the programs of {level.name}'s commands only, and "
            f"{_short(name)} is none",
            "Name it in `commands` of the level's file; what commands run in turn, in "
            "`confinement.execute`.",
        )


def _executable(level: Level, program: str) -> bool:
    commands = level.commands or frozenset()
    if "/" not in program:
        return program in commands
    directory, name = posixpath.split(program)
    listed = directory in _PROGRAMS and name in commands
    return listed or _within(program, level.confinement.execute)


def _paths(level: Level, words: Sequence[str], cwd: str) -> Iterator[Stop]:
    try:
        intents = path_intents(words)
    except CommandError:
        return
    if intents is None:
        intents = _guessed(words)
    reads, writes = ([resolve(path, cwd) for path in paths] for paths in intents)
    # One of each kind says enough.
    yield from next((stops for path in writes if (stops := list(_written(level, path)))), [])
    yield from next((stops for path in reads if (stops := list(_read(level, path)))), [])


def _guessed(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The absolute paths among the words, also as the values of options and of `name=`."""
    name = words[0].rpartition("/")[2]
    if name in _PRINT:
        return [], []
    values = [word.partition("=")[2] if "=/" in word else word for word in words[1:]]
    paths = [value for value in values if value.startswith("/") and not value.startswith("//")]
    return ([], paths) if name in _WRITE else (paths, [])


def _read(level: Level, path: str) -> Iterator[Stop]:
    confinement = level.confinement
    if not confinement.paths or _within(path, (*_OWN, *DEVICES, *BASELINE)):
        return
    if _within(path, (*confinement.read, *confinement.execute)) or _executable(level, path):
        return
    yield Stop(
        "landlock",
        "the kernel lets commands read the workspace, /tmp and what they need themselves only, "
        f"not {_short(path)}",
        "Copy it into the workspace, or name it in `confinement.read` of the level's file.",
    )


def _written(level: Level, path: str) -> Iterator[Stop]:
    shared = ("/dev/shm",) if level.limits.shm_bytes else ()  # noqa: S108 - the sandbox's
    if _within(path, (*_OWN, *DEVICES, *shared)):
        return
    remedy = "Write to the workspace or /tmp; no level can write elsewhere."
    if not _within(path, _KERNEL):
        yield Stop("mount", f"the image is mounted read-only: {_short(path)}", remedy)
    if level.confinement.paths:
        yield Stop(
            "landlock",
            f"the kernel lets commands write to the workspace and /tmp only, not {_short(path)}",
            remedy,
        )


def _calls(level: Level, words: Sequence[str]) -> Iterator[Stop]:
    call = known_commands.system_call(words)
    if call is None or (call == known_commands.PTRACE and level.confinement.ptrace):
        return
    remedy = "No level permits it: it leads out of what confines a command."
    if call == known_commands.PTRACE:
        remedy = "Set `confinement.ptrace = true` in the level's file."
    name = known_commands.real_words(words)[0]
    yield Stop("seccomp", f"{_short(name)} needs the system call {call}, which is denied", remedy)


def _network(level: Level, words: Sequence[str]) -> Iterator[Stop]:
    hosts = known_commands.hosts(words)
    if hosts is None:
        return
    name = _short(known_commands.real_words(words)[0])
    dropped = next(filter(known_commands.is_dropped, hosts), None)
    if level.network == "none":
        if not hosts or not all(map(known_commands.is_loopback, hosts)):
            yield Stop(
                "network",
                f"{name} uses the network, and a sandbox at {level.name} has none",
                'Use a level with `network = "open"`, or set that in the level\'s file.',
            )
    elif dropped is not None:
        yield Stop(
            "network",
            f"the network does not lead to the host or to link-local addresses: {_short(dropped)}",
            "No level permits it: the host is none of a sandbox's business.",
        )


def _within(path: str, places: Iterable[str]) -> bool:
    return any(path == place or path.startswith(place + "/") for place in places)


def _short(text: str) -> str:
    """A client's text, fit for a message."""
    short = text if len(text) <= 80 else f"{text[:77]}..."
    return short if short.isprintable() else repr(short)[1:-1]
