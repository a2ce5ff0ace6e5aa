"""Prompts: what the session's level allows, and how a tool of the operator's is used."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from api.mcp.manifest_tools import OfferedTool
from api.mcp.messages import INVALID_PARAMS, McpError, object_parameter, text_parameter
from api.mcp.tool import Caller
from api.mcp.tools import tools_of_manifests
from orchestrator.rules.policy.levels import Level

LEVEL_RULES = "level_rules"
TOOL_MANUAL = "tool_manual"
# The argument of the tool's manual.
TOOL = "tool"
_NETWORKS = {
    "none": "There is no network.",
    "egress": "The network is reached through a proxy, which allows listed hosts only.",
    "open": "The network is open.",
}


class Prompt(NamedTuple):
    """A prompt; `text` makes it from the arguments, of which each is required."""

    name: str
    description: str
    arguments: dict[str, str]
    text: Callable[[Caller, dict[str, str]], str]

    @property
    def raw(self) -> dict[str, Any]:
        """The members of the protocol's `Prompt`."""
        arguments = [
            {"name": name, "description": text, "required": True}
            for name, text in self.arguments.items()
        ]
        return {"name": self.name, "description": self.description, "arguments": arguments}


def prompt(caller: Caller, params: dict[str, Any]) -> dict[str, Any]:
    """The result of `prompts/get`. Raises: McpError."""
    name, given = text_parameter(params, "name"), object_parameter(params, "arguments")
    found = next((each for each in PROMPTS if each.name == name), None)
    if found is None:
        raise McpError(INVALID_PARAMS, f"there is no prompt {name[:128]}")
    for each in given:
        if each not in found.arguments:
            raise McpError(INVALID_PARAMS, f"{each[:64]} is no argument of {name}")
    arguments = {each: text_parameter(given, each) for each in found.arguments}
    content = {"type": "text", "text": found.text(caller, arguments)}
    return {
        "description": found.description,
        "messages": [{"role": "user", "content": content}],
    }


def names_of_manifests(caller: Caller) -> list[str]:
    """The names of the operator's tools, each once, in order."""
    return sorted({each.listed.tool for each in tools_of_manifests(caller)})


def level_rules(level: Level, workspace: str) -> str:
    """What a level allows, in sentences."""
    commands = "any command" if level.commands is None else ", ".join(sorted(level.commands))
    limits = level.limits
    lines = [
        f"Work in this sandbox by its rules. Its permission level is {level.name}.",
        f"Commands: {commands}.",
        f"Files: {workspace} is the workspace, of at most {limits.workspace_bytes} bytes.",
        f"Network: {_NETWORKS[level.network]}",
        f"A command ends after {level.timeout_default} s, or after the `timeout` that it is given, "
        f"of at most {level.timeout_max} s.",
        f"Memory: {limits.memory_bytes} bytes. Processors: {limits.cpus:g}.",
        f"Tools of the operator: up to risk tier {level.risk_tier}.",
    ]
    if level.noexec:
        lines.append("Nothing in the workspace or in /tmp can be executed.")
    lines.append(
        "Every call is decided and recorded. A refusal names its rule and says what to do instead. "
        "Do that; the same in other words is refused, too."
    )
    return "\n".join(lines)


def _level_rules(caller: Caller, _given: dict[str, str]) -> str:
    session = caller.conversation.session
    return level_rules(session.level, session.workspace_path)


def _manual(caller: Caller, given: dict[str, str]) -> str:
    offered = [each for each in tools_of_manifests(caller) if each.listed.tool == given[TOOL]]
    if not offered:
        raise McpError(INVALID_PARAMS, f"there is no tool {given[TOOL][:128]} of the operator's")
    return "\n".join(_pages(given[TOOL], offered))


def _pages(tool: str, offered: list[OfferedTool]) -> Iterator[str]:
    if offered[0].listed.command:
        yield f"{tool} is an interactive program. Each call sends it one line, and its state stays."
    else:
        yield f"{tool} runs once for each call."
    for name, listed in offered:
        rule = "" if listed.rule is None else f" Refused in this session, by {listed.rule}."
        yield f"\n{name} (risk tier {listed.risk_tier}):{rule}\n{listed.explained}"


PROMPTS = (
    Prompt(LEVEL_RULES, "What this session's permission level allows.", {}, _level_rules),
    Prompt(
        TOOL_MANUAL,
        "How a tool of the operator's is used.",
        {TOOL: "The tool's name, such as psql."},
        _manual,
    ),
)
