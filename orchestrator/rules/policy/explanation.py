"""Explains what stops a command, a path or an operation, and how to allow it.

Nothing is executed or recorded.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.host.workspace.paths import (
    PATH_RULE,
    escape_message,
    inside_path,
    outside_path,
    volume_path,
)
from orchestrator.rules.policy.decision import check_command, read_command
from orchestrator.rules.policy.layers import Layer, Reaches, Stop, command_stops, path_stops
from orchestrator.rules.policy.levels import Level
from orchestrator.rules.policy.policy_remedies import remedy_of
from orchestrator.rules.policy.session_policy import PolicyRefusalError, SessionPolicy
from paddock.contract.remedies import COMMANDS, shell_remedy
from sandbox_agent.decide.command_words import DeniedError
from sandbox_agent.decide.commands import WORKSPACE

ALLOWED = "allowed"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The outcome of a command or a path, judged by its words.

    `allow`, `verdict`, `rule`, `message` and `remedy` (None if it is allowed) are the parser's, as
    in a real request. `layers` lists everything that would stop it, including lower layers; `layer`
    is the first of them, counting the parser.
    """

    allow: bool
    verdict: str
    rule: str
    layer: Layer
    message: str
    remedy: str | None
    layers: tuple[Stop, ...]


def explain_command(
    level: Level,
    command: str | None,
    argv: Sequence[str] | None,
    cwd: str | None,
    reaches: Reaches | None = None,
    mounts: Sequence[str] = (),
    shell: str | None = None,
    volumes: Sequence[str] = (),
    workspace: str = WORKSPACE,
) -> Explanation:
    """The level's decision about a command; the last ones as in `command_stops`.

    Other arguments are those of `check_command`. Raises: CommandError if it is malformed.
    """
    stops: list[Stop] = []
    try:
        words, directory = read_command(level, command, argv, cwd, shell, workspace)
        if words and words[0]:
            stops = command_stops(level, words, directory, reaches, mounts, volumes, workspace)
        check_command(level, command, argv, cwd, mounts, shell, volumes, workspace)
    except DeniedError as error:
        remedy = shell_remedy(error.rule, permitted=level.commands is None)
        return _denied(error.rule, error.message, stops, remedy)
    return _allowed(f"allowed at permission level {level.name}", stops)


def explain_path(
    level: Level,
    path: str,
    mounts: Sequence[str] = (),
    volumes: Sequence[str] = (),
    workspace: str = WORKSPACE,
) -> Explanation:
    """Whether file operations accept a path.

    The layers are those that would stop a command of the level that reads or writes the path;
    `mounts`, `volumes` and `workspace` as in `command_stops`.
    """
    if inside_path(path, workspace) is not None:
        return _allowed("the path is inside the workspace", [])
    stops = path_stops(level, path, mounts, volumes, workspace)
    if volume_path(path, volumes, workspace) is not None:
        writes = volume_path(path, mounts, workspace) is not None
        return _allowed(f"the path is in a volume and can be read{_written(writes)}", stops)
    if level.commands is None and outside_path(path, workspace, writes=False) is not None:
        writes = outside_path(path, workspace, writes=True) is not None
        return _allowed(f"the path can be read{_written(writes)}", stops)
    return _denied(PATH_RULE, escape_message(path), stops)


def _written(writes: bool) -> str:
    return " and written to" if writes else ""


def _allowed(message: str, stops: list[Stop]) -> Explanation:
    layer = stops[0].layer if stops else "parser"
    return Explanation(True, "allow", ALLOWED, layer, message, None, tuple(stops))


def _denied(rule: str, message: str, stops: list[Stop], remedy: str | None = None) -> Explanation:
    remedy = remedy or COMMANDS[rule]
    layers = (Stop("parser", message, remedy), *stops)
    return Explanation(False, "deny", rule, "parser", message, remedy, layers)


def explain_operation(
    policy: SessionPolicy, operation: str, ref: str | None, max_tokens: int | None, network: bool
) -> Explanation:
    """The policy's decision; the arguments are those of `SessionPolicy.check`."""
    try:
        policy.check(operation, ref=ref, max_tokens=max_tokens, network=network)
    except PolicyRefusalError as error:
        rule = error.fields["rule"]
        stop = Stop("policy", error.detail, remedy_of(policy, rule, operation))
        return Explanation(False, "deny", rule, "policy", error.detail, stop.remedy, (stop,))
    named = f"policy {policy.name}" if policy.name else "the policy"
    return Explanation(True, "allow", ALLOWED, "policy", f"allowed by {named}", None, ())
