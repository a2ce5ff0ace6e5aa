"""Answers `which` and `neofetch` in the agent, because the real programs are shell scripts.

This applies only to levels that list their commands. At other levels the image's programs run, if
it has them.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from sandbox_agent.decide.options import SAFE, parse_options


class Facts(NamedTuple):
    """The facts that the answers use. `cpus` is in cores; `paths` maps command names to files."""

    level: str
    os: str
    kernel: str
    cpus: float
    memory_bytes: int
    paths: Mapping[str, str]


class BuiltinResult(NamedTuple):
    """The exit code and output that the command would have produced."""

    exit_code: int
    stdout: bytes
    stderr: bytes


def builtin(
    argv: Sequence[str], commands: Collection[str] | None, facts: Facts
) -> BuiltinResult | None:
    """The agent's own answer to an allowed `argv`, or None when a program must run."""
    if commands is None or argv[0] not in commands:
        return None
    if argv[0] == "which":
        return _which(parse_options(argv[1:], SAFE["which"]).operands, commands, facts.paths)
    if argv[0] == "neofetch":
        return BuiltinResult(0, _summary(facts).encode(errors="replace"), b"")
    return None


def _which(
    names: Sequence[str], commands: Collection[str], paths: Mapping[str, str]
) -> BuiltinResult:
    found = [paths[name] for name in names if name in commands and name in paths]
    complete = bool(names) and len(found) == len(names)
    return BuiltinResult(0 if complete else 1, "".join(f"{path}\n" for path in found).encode(), b"")


def _summary(facts: Facts) -> str:
    return (
        "paddock sandbox\n"
        f"level:  {facts.level}\n"
        f"os:     {facts.os}\n"
        f"kernel: {facts.kernel}\n"
        f"cpus:   {facts.cpus:g}\n"
        f"memory: {facts.memory_bytes // (1024 * 1024)} MiB\n"
    )
