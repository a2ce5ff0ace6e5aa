"""Policies of sessions' turns: read from the command line, and shown."""

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.exits import Failure, Status
from paddock.cli.output import note, print_fields, print_table

if TYPE_CHECKING:
    from paddock.client import ListedPolicy

Policy = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="NAME|FILE",
        help="What its turns may do: a session policy, or a .toml or .json file of your own.",
    ),
]


def policy_of(text: str | None) -> str | dict[str, Any] | None:
    """The name of a policy, or the members of that file. Raises: Failure, OSError."""
    if text is None:
        return None
    path = Path(text)
    if path.suffix not in (".toml", ".json"):
        return text
    try:
        content = path.read_text(encoding="utf-8")
        members = tomllib.loads(content) if path.suffix == ".toml" else json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Failure(f"{path}: {error}", status=Status.USAGE) from None
    if not isinstance(members, dict):
        raise Failure(f"{path}: must have the members of a policy", status=Status.USAGE)
    return members


def print_policies(policies: Sequence["ListedPolicy"]) -> None:
    """A table of session policies."""
    rows = [
        (
            policy.name,
            len(policy.allowed_operations),
            _patterns(policy.world_rules.read_patterns),
            "" if policy.world_rules.read_only else _patterns(policy.world_rules.write_patterns),
            "yes" if policy.world_rules.proposal_mode else "no",
            _commands(policy),
            policy.extends or "",
        )
        for policy in policies
    ]
    columns = (
        *("session policy", ">operations", "reads", "writes", "proposals", "commands"),
        "inherits from",
    )
    print_table(columns, rows, nothing="")
    if all(policy.commands_refused is not None for policy in policies):
        note("no policy permits commands: `paddock policies show NAME` says why, and what to do")


def _commands(policy: "ListedPolicy") -> str:
    """Whether commands may be run, and which inherited members refuse them."""
    if policy.commands_refused is None:
        return "yes"
    deciding = ("allowed_operations", "denied_operations", "execution_rules.allow_shell_commands")
    inherited = [member for member in deciding if member in policy.inherited]
    return f"no: inherits {' '.join(inherited)}" if inherited else "no"


def print_policy(policy: "ListedPolicy") -> None:
    """All details of one session policy."""
    world, llm, execution = policy.world_rules, policy.llm_rules, policy.execution_rules
    print_fields(
        (
            ("session policy", policy.name),
            ("allowed", " ".join(policy.allowed_operations) or "nothing"),
            ("denied", " ".join(policy.denied_operations) or None),
            ("reads", _patterns(world.read_patterns)),
            ("writes", "nothing" if world.read_only else _patterns(world.write_patterns)),
            ("writes are proposals", _yes(world.proposal_mode)),
            ("completions", _yes(llm.allow_complete)),
            ("intents", _yes(llm.allow_intent)),
            ("tokens per call", llm.max_tokens_per_call),
            ("approvers", policy.approvers if policy.approvers > 1 else None),
            ("commands", policy.commands_refused or "yes"),
            ("network", _yes(execution.allow_network_calls)),
            ("nested programs", _yes(execution.allow_subeval)),
            ("inherits from", policy.extends),
            ("inherited", " ".join(policy.inherited) or None),
            ("sha256", policy.sha256),
        )
    )


def _patterns(patterns: Sequence[str]) -> str:
    return " ".join(patterns) or "nothing"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
