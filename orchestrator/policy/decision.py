"""What a level's rules say of a command, by its words alone: nothing is looked at or done."""

from collections.abc import Sequence

from orchestrator.policy.levels import Level
from sandbox_agent.commands import CommandError, DeniedError, decide, normalize_cwd, parse_command


def read_command(
    level: Level, command: str | None, argv: Sequence[str] | None, cwd: str | None
) -> tuple[list[str], str]:
    """The words of a command and its directory, whatever is allowed.

    Raises: DeniedError where they can't be told for operators of a shell; CommandError.
    """
    words = parse_command(command) if command is not None else list(argv or [])
    return words, normalize_cwd(cwd or ".", anywhere=level.commands is None)


def check_command(
    level: Level, command: str | None, argv: Sequence[str] | None, cwd: str | None
) -> tuple[list[str], str]:
    """The words and the directory of a command that the level allows.

    It is given as a `command` line or an `argv`; `cwd` relative to the workspace or under
    /workspace, or anywhere where any command is allowed. Raises: DeniedError with the rule;
    CommandError for one that is malformed.
    """
    words, directory = read_command(level, command, argv, cwd)
    decision = decide(
        words,
        level.commands,
        cwd=directory,
        level=level.name,
        guard_writes=level.guard_writes,
    )
    if not decision.allow:
        raise DeniedError(decision.rule, decision.message)
    return words, directory


def command_field(error: CommandError, command: str | None) -> str:
    """The part of the request that is malformed."""
    if str(error).startswith("cwd"):
        return "cwd"
    return "command" if command is not None else "argv"
