"""Applies a level's rules to a command's words. Nothing is read or executed."""

from collections.abc import Sequence

from orchestrator.rules.policy.levels import Level
from sandbox_agent.decide.command_words import CommandError, DeniedError, parse_command, shell_argv
from sandbox_agent.decide.commands import WORKSPACE, decide, normalize_cwd

# Deciding about a word costs as much as so many characters.
_WORD_COST = 16


def read_command(
    level: Level,
    command: str | None,
    argv: Sequence[str] | None,
    cwd: str | None,
    shell: str | None = None,
    workspace: str = WORKSPACE,
) -> tuple[list[str], str]:
    """The words and the directory of a command, whether it is allowed or not.

    `workspace` is where the session's workspace is in its sandbox.
    Raises: DeniedError if shell operators make the words ambiguous, or for a `shell` line where no
    shell runs; CommandError.
    """
    if shell is not None:
        words = shell_argv(shell, level.commands, level.name)
    elif command is not None:
        words = parse_command(command, shell=level.commands is None)
    else:
        words = list(argv or [])
    return words, normalize_cwd(cwd or ".", workspace, anywhere=level.commands is None)


def check_command(
    level: Level,
    command: str | None,
    argv: Sequence[str] | None,
    cwd: str | None,
    mounts: Sequence[str] = (),
    shell: str | None = None,
    volumes: Sequence[str] = (),
    workspace: str = WORKSPACE,
) -> tuple[list[str], str]:
    """The words and the directory of a command that the level allows.

    The command is a `command` line, an `argv`, or a `shell` line. `cwd` is relative to the
    workspace or below its path, `workspace`; at levels that allow any command it may be anywhere.
    `mounts` are the targets of the session's writable mounts and volumes, `volumes` those of all
    its volumes.
    Raises: DeniedError with the rule; CommandError if the command is malformed.
    """
    words, directory = read_command(level, command, argv, cwd, shell, workspace)
    decision = decide(
        words,
        level.commands,
        workspace,
        directory,
        level=level.name,
        guard_writes=level.guard_writes,
        mounts=mounts,
        volumes=volumes,
    )
    if not decision.allow:
        raise DeniedError(decision.rule, decision.message)
    return words, directory


def command_size(command: str | None, argv: Sequence[str] | None, shell: str | None = None) -> int:
    """The approximate cost of deciding, in characters; a word adds a constant.

    The estimate itself must be cheap.
    """
    if shell is not None:
        return len(shell)
    if argv is None:
        return _WORD_COST * len(command or "")
    return sum(map(len, argv)) + _WORD_COST * len(argv)


def command_field(error: CommandError, command: str | None) -> str:
    """The request's malformed field."""
    for name in ("cwd", "shell"):
        if str(error).startswith(f"{name} "):
            return name
    return "command" if command is not None else "argv"
