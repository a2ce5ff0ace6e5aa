"""The layers below the parser that would stop a command even if the parser allowed it.

The answer considers a command's words only. Only the kernel sees what a program does and where
links lead, so it may stop more than this module reports. Pure functions.
"""

import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from orchestrator.rules.egress.rules import Decision
from orchestrator.rules.policy import known_commands
from orchestrator.rules.policy.levels import Level
from orchestrator.settings.hosts import Host, HostError, parse_host
from sandbox_agent.decide.baseline import BASELINE, DEVICES
from sandbox_agent.decide.command_words import CommandError
from sandbox_agent.decide.commands import WORKSPACE, path_intents, resolve

# Whether a host may be reached at some port.
Reaches = Callable[[Host], Decision]
Layer = Literal["parser", "mount", "landlock", "seccomp", "network", "policy"]

_TMP = "/tmp"  # noqa: S108 - the sandbox's
_PROGRAMS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
# These are not part of the image, so not on its read-only file system.
_KERNEL = ("/dev", "/proc", "/sys")
# Commands without a table of options: they only print their words, or write to absolute paths.
_PRINT = frozenset({"echo", "printf"})
_WRITE = frozenset({"chmod", "chown", "dd", "install", "ln", "rmdir", "tee", "truncate"})
# The most refused hosts that are reported of one command.
_MOST_HOSTS = 16


@dataclass(frozen=True, slots=True)
class Stop:
    """A layer's refusal; `remedy` tells how to avoid it or how to allow the command."""

    layer: Layer
    message: str
    remedy: str


def command_stops(
    level: Level,
    words: Sequence[str],
    cwd: str,
    reaches: Reaches | None = None,
    mounts: Sequence[str] = (),
    volumes: Sequence[str] = (),
    workspace: str = WORKSPACE,
) -> list[Stop]:
    """The refusals of a command, in order; `cwd` is absolute.

    `reaches` decides about hosts of the way out; None: the level's rules decide. `mounts` are the
    targets of the session's writable mounts and volumes, `volumes` those of all its volumes, and
    `workspace` is where its workspace is.
    """
    own = (workspace, _TMP)
    return [
        *_program(level, words[0], cwd, own),
        *_paths(level, words, cwd, (*own, *mounts), (*own, *volumes)),
        *_calls(level, words),
        *_network(level, words, reaches or level.egress.decide_any_port),
    ]


def path_stops(
    level: Level,
    path: str,
    mounts: Sequence[str] = (),
    volumes: Sequence[str] = (),
    workspace: str = WORKSPACE,
) -> list[Stop]:
    """The refusals of a command that reads or writes a workspace-relative or absolute path."""
    absolute, own = resolve(path, workspace), (workspace, _TMP)
    # The layer that denies reading a path also denies writing it.
    found = (
        *_written(level, absolute, (*own, *mounts)),
        *_read(level, absolute, (*own, *volumes)),
    )
    stops = {stop.layer: stop for stop in found}
    return list(stops.values())


def _program(level: Level, name: str, cwd: str, own: Sequence[str]) -> Iterator[Stop]:
    path = resolve(name, cwd) if "/" in name else None
    if path is not None and _within(path, own) and level.noexec:
        yield Stop(
            "mount",
            f"the workspace and /tmp are mounted noexec: {_short(name)} can't be executed",
            "Run it with an interpreter that the level allows, or set `noexec = false` in the "
            "level's file.",
        )
    if level.confinement.paths and not _executable(level, path or name):
        yield Stop(
            "landlock",
            f"the kernel executes only the programs of {level.name}'s commands, and "
            f"{_short(name)} is not one",
            "Name it in `commands` of the level's file; programs that commands start, in "
            "`confinement.execute`.",
        )


def _executable(level: Level, program: str) -> bool:
    commands = level.commands or frozenset()
    if "/" not in program:
        return program in commands
    directory, name = posixpath.split(program)
    listed = directory in _PROGRAMS and name in commands
    return listed or _within(program, level.confinement.execute)


def _paths(
    level: Level,
    words: Sequence[str],
    cwd: str,
    writable: Sequence[str],
    readable: Sequence[str],
) -> Iterator[Stop]:
    try:
        intents = path_intents(words)
    except CommandError:
        return
    if intents is None:
        intents = _guessed(words)
    reads, writes = ([resolve(path, cwd) for path in paths] for paths in intents)
    # One of each kind is enough.
    yield from next(
        (stops for path in writes if (stops := list(_written(level, path, writable)))), []
    )
    yield from next((stops for path in reads if (stops := list(_read(level, path, readable)))), [])


def _guessed(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The absolute paths among the words, including values of options and of `name=`."""
    name = words[0].rpartition("/")[2]
    if name in _PRINT:
        return [], []
    values = [word.partition("=")[2] if "=/" in word else word for word in words[1:]]
    paths = [value for value in values if value.startswith("/") and not value.startswith("//")]
    return ([], paths) if name in _WRITE else (paths, [])


def _read(level: Level, path: str, readable: Sequence[str]) -> Iterator[Stop]:
    confinement = level.confinement
    if not confinement.paths or _within(path, (*readable, *DEVICES, *BASELINE)):
        return
    if _within(path, (*confinement.read, *confinement.execute)) or _executable(level, path):
        return
    yield Stop(
        "landlock",
        "the kernel lets commands read only the workspace, /tmp and their own files, "
        f"not {_short(path)}",
        "Copy it into the workspace, or name it in `confinement.read` of the level's file.",
    )


def _written(level: Level, path: str, writable: Sequence[str]) -> Iterator[Stop]:
    shared = ("/dev/shm",) if level.limits.shm_bytes else ()  # noqa: S108 - the sandbox's
    if _within(path, (*writable, *DEVICES, *shared)):
        return
    remedy = "Write to the workspace or /tmp; no level allows writing elsewhere."
    if not _within(path, _KERNEL):
        yield Stop("mount", f"the image is mounted read-only: {_short(path)}", remedy)
    if level.confinement.paths:
        yield Stop(
            "landlock",
            f"the kernel lets commands write only to the workspace and /tmp, not {_short(path)}",
            remedy,
        )


def _calls(level: Level, words: Sequence[str]) -> Iterator[Stop]:
    call = known_commands.system_call(words)
    if call is None or (call == known_commands.PTRACE and level.confinement.ptrace):
        return
    remedy = "No level permits it: it would escape a command's confinement."
    if call == known_commands.PTRACE:
        remedy = "Set `confinement.ptrace = true` in the level's file."
    name = known_commands.real_words(words)[0]
    yield Stop("seccomp", f"{_short(name)} needs the system call {call}, which is denied", remedy)


def _network(level: Level, words: Sequence[str], reaches: Reaches) -> Iterator[Stop]:
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
    elif level.network == "egress":
        yield from _egress(hosts, reaches)
    elif dropped is not None:
        yield Stop(
            "network",
            f"the network does not reach the host or link-local addresses: {_short(dropped)}",
            "No level permits it: sandboxes may not reach the host.",
        )


def _egress(hosts: Iterable[str], reaches: Reaches) -> Iterator[Stop]:
    """The refusals of the first few hosts that are refused."""
    refused = (stop for host in dict.fromkeys(hosts) for stop in _refused_host(host, reaches))
    yield from islice(refused, _MOST_HOSTS)


def _refused_host(host: str, reaches: Reaches) -> Iterator[Stop]:
    try:
        decision = reaches(parse_host(host))
    except HostError as error:
        yield Stop("network", f"the proxy refuses {_short(host)}: {error}", "Use its name.")
        return
    if decision.remedy is not None and not known_commands.is_loopback(host):
        yield Stop("network", f"{decision.rule}: {decision.why}", decision.remedy)


def _within(path: str, places: Iterable[str]) -> bool:
    return any(path == place or path.startswith(place + "/") for place in places)


def _short(text: str) -> str:
    """A client's text, shortened for a message."""
    short = text if len(text) <= 80 else f"{text[:77]}..."
    return short if short.isprintable() else repr(short)[1:-1]
