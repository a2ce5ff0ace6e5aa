"""Explains what a level's rules say of a command or a path. Nothing is done or recorded."""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.policy.decision import check_command
from orchestrator.policy.levels import Level
from orchestrator.workspace.paths import PATH_RULE, escape_message, inside_path
from sandbox_agent.commands import DeniedError

ALLOWED = "allowed"
# By rule: how to be allowed, or how to do it differently.
REMEDIES = {
    "shell-operators": "Pass the words in argv, one command at a time; at a level that allows any "
    'command, a shell can be run as ["sh", "-c", "…"].',
    "command-allowlist": "Use one of the allowed commands by its bare name, or a session at a "
    "higher permission level.",
    "option-not-allowed": "Leave the option out, or spell it out as the command's manual does; "
    "a session at a level that allows any command takes every option.",
    "operand-not-allowed": "Run the command without that operand.",
    "url-not-allowed": "Begin the URL with http:// or https://.",
    "path-outside-workspace": "Use a path in the workspace: relative, or under /workspace.",
    "write-outside-workspace": "Write to a path in the workspace: relative, or under /workspace.",
    "environment-allowlist": "Leave the variable out, or use a session at a level that allows it.",
    "file-permissions": "Change the file's permissions, or have it removed and written anew: it "
    "is opened as the session's own user.",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """A verdict of the string rules; `remedy` is None where it is `allow`."""

    allow: bool
    verdict: str
    rule: str
    layer: str
    message: str
    remedy: str | None


def explain_command(
    level: Level, command: str | None, argv: Sequence[str] | None, cwd: str | None
) -> Explanation:
    """What the level says of a command. Raises: CommandError for one that is malformed."""
    try:
        check_command(level, command, argv, cwd)
    except DeniedError as error:
        return _denied(error.rule, error.message)
    return _allowed(f"allowed at permission level {level.name}")


def explain_path(path: str) -> Explanation:
    """Whether the file operations take a path: the same at every level."""
    if inside_path(path) is None:
        return _denied(PATH_RULE, escape_message(path))
    return _allowed("the path is inside the workspace")


def _allowed(message: str) -> Explanation:
    return Explanation(True, "allow", ALLOWED, "parser", message, None)


def _denied(rule: str, message: str) -> Explanation:
    return Explanation(False, "deny", rule, "parser", message, REMEDIES[rule])
