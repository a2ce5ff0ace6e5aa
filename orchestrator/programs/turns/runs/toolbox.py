"""All tools of a run: the built-in ones, the operator's, and the host's. Pure."""

import json
from collections.abc import Container, Mapping, Sequence
from functools import partial
from typing import Any

from orchestrator.programs.turns.host_tools import HostTool
from orchestrator.programs.turns.json_values import from_json
from orchestrator.programs.turns.outcome import Value, plain
from orchestrator.programs.turns.programs import Operation
from orchestrator.programs.turns.runs.run_tool import RunTool, SchemaArguments, output_of
from orchestrator.programs.turns.runs.tools import TOOLS
from orchestrator.rules.policy.levels import Level
from orchestrator.rules.policy.memory_levels import SEARCH, WRITE, may_use
from orchestrator.rules.policy.session_policy import EXECUTIONS, PolicyRefusalError, SessionPolicy
from orchestrator.rules.tools.listing import ListedTool
from orchestrator.rules.tools.offered_names import offered_names

# What endpoints take in one request: tools, and characters of a description.
_MOST_OFFERED = 128
_LONGEST_DESCRIPTION = 1024


def toolbox(
    listed: Sequence[ListedTool], host: Sequence[HostTool], absent: Container[str] = ()
) -> dict[str, RunTool]:
    """The tools that a model may name; if two have one name, the first counts.

    The image has none of the programs in `absent`, so no call of their tools could succeed.
    """
    found = dict(TOOLS)
    names = offered_names((each.name for each in listed), found)
    operators = [
        _of_operator(each, names[each.name], each.allowed and each.program not in absent)
        for each in listed
    ]
    for tool in (*operators, *map(_of_host, host)):
        found.setdefault(tool.name, tool)
    return found


def named(tools: Mapping[str, RunTool], name: str) -> RunTool | None:
    """The tool with that name, or with the operator's name of it."""
    return tools.get(name) or next((each for each in tools.values() if each.also == name), None)


def offered(tools: Mapping[str, RunTool], policy: SessionPolicy, level: Level) -> list[RunTool]:
    """The tools of which policy, level and manifests could permit a call."""
    network = level.network != "none"
    found = [
        tool
        for tool in tools.values()
        if tool.allowed
        and not (tool.any_command and level.commands is not None)
        and any(_permitted(policy, name, network) for name in tool.operations)
        and (tool.name not in (SEARCH, WRITE) or may_use(level, tool.name))
    ]
    return found[:_MOST_OFFERED]


def _permitted(policy: SessionPolicy, operation: str, network: bool) -> bool:
    try:
        policy.check(operation, network=network and operation in EXECUTIONS)
    except PolicyRefusalError:
        return False
    return True


def _of_operator(listed: ListedTool, name: str, allowed: bool) -> RunTool:
    """A command of a tool takes a line, a oneshot tool its arguments."""

    def operation(given: dict[str, Any]) -> Operation:
        value = given["command"] if listed.command else from_json(given)
        return Operation("world.tool", (listed.name, value))

    return RunTool(
        name,
        listed.explained[:_LONGEST_DESCRIPTION],
        SchemaArguments(listed.input_schema),
        ("world.tool",),
        operation,
        _answer if listed.command else output_of,
        allowed,
        also=listed.name,
    )


def _answer(_: Any, value: Value) -> str:
    """What a tool said, and what was wrong."""
    found = dict(plain(value))
    lines = [found["output"]] if found["output"] else []
    if found["status"] != "success":
        lines.append(f"[{found['status']}: {found['error']}]")
    return "\n".join(lines) or "[nothing]"


def _of_host(tool: HostTool) -> RunTool:
    return RunTool(
        tool.name,
        tool.description,
        SchemaArguments(tool.input_schema),
        ("tool.call",),
        partial(_call, tool.name),
        lambda given, value: str(value) or "[nothing]",
    )


def _call(name: str, given: dict[str, Any]) -> Operation:
    return Operation("tool.call", (name, json.dumps(given, ensure_ascii=False)))
