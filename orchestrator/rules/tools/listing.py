"""The tools from a session's point of view: each command, and whether it could be allowed."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from orchestrator.rules.access.key_bounds import KeyBounds
from orchestrator.rules.tools.arguments import Argument
from orchestrator.rules.tools.cedar import CedarFacts
from orchestrator.rules.tools.gates import SESSION_TOOLS, Setting, opening
from orchestrator.rules.tools.manifest import RISK_TIERS, Manifest, ToolCommand
from orchestrator.rules.tools.oneshot import Oneshot, always_refused
from orchestrator.rules.tools.schemas import input_schema
from orchestrator.rules.tools.states import ERROR, READY
from orchestrator.rules.tools.tool_rules import ToolRules
from sandbox_agent.decide.protocol import WORKSPACE_DIR


class Asker(NamedTuple):
    """The session that asks, with the facts that `gates.opening` needs."""

    highest_tier: str
    permission_level: str
    role: str
    tools: Collection[str] | None
    ptrace: bool
    mounts: Collection[str]
    bounds: KeyBounds
    workspace: str = WORKSPACE_DIR


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTool:
    """A command of a tool, or a oneshot tool, whose `command` and `pattern` are empty.

    `program` is what it starts, by its bare name or path; empty if arguments choose it.

    `rule` is the gate that no line could pass in the session; None where one could.
    """

    name: str
    tool: str
    command: str = ""
    description: str
    pattern: str = ""
    input_schema: dict[str, Any]
    risk_tier: str
    human_approval: bool
    rule: str | None
    sha256: str
    program: str = ""

    @property
    def allowed(self) -> bool:
        """Whether a line could pass."""
        return self.rule is None

    @property
    def explained(self) -> str:
        """The description for a model: what it does, what a line must look like, who approves."""
        notes = [self.description]
        if self.pattern:
            notes.append(f"The line must match {self.pattern}")
        if self.human_approval:
            notes.append("A person must approve each call.")
        return "\n".join(notes)


def list_tools(rules: ToolRules, asker: Asker) -> list[ListedTool]:
    """Every `{tool}.{command}` in the order of the catalog, followed by every oneshot `{tool}`.

    The policies are evaluated for a first interaction in every state that the tool can be in.
    """
    listed = []
    for manifest in rules.catalog.values():
        for command in manifest.commands.values():
            listed.append(
                ListedTool(
                    name=manifest.tool_name(command.name),
                    tool=manifest.name,
                    command=command.name,
                    description=command.description,
                    pattern=command.pattern.text,
                    input_schema=input_schema(),
                    risk_tier=command.risk_tier,
                    human_approval=command.human_approval,
                    rule=_refusing(rules, manifest, command, asker),
                    sha256=manifest.sha256,
                    program=manifest.argv[0],
                )
            )
    listed += [_oneshot(rules, tool, asker) for tool in rules.catalog.oneshots.values()]
    return listed


def _oneshot(rules: ToolRules, tool: Oneshot, asker: Asker) -> ListedTool:
    return ListedTool(
        name=tool.name,
        tool=tool.name,
        description=tool.description,
        input_schema={
            "type": "object",
            "properties": {arg.name: _property(tool, arg) for arg in tool.args},
            "required": [
                arg.name for arg in tool.args if arg.required and not tool.defaults.get(arg.name)
            ],
            "additionalProperties": False,
        },
        risk_tier=tool.risk_tier,
        human_approval=tool.human_approval,
        rule=_refusing_oneshot(rules, tool, asker),
        sha256=tool.sha256,
        program="" if "{" in tool.words[0] else tool.words[0],
    )


def _property(tool: Oneshot, arg: Argument) -> dict[str, Any]:
    """The known facts of an argument as JSON Schema; all arguments are texts."""
    default = tool.defaults.get(arg.name)
    described = arg.description or arg.type
    return {
        "type": "string",
        "description": described,
        **({"enum": list(arg.allowed)} if arg.allowed else {}),
        **({"default": default} if default else {}),
    }


def _refusing_oneshot(rules: ToolRules, tool: Oneshot, asker: Asker) -> str | None:
    if asker.tools is not None and tool.name not in asker.tools:
        return SESSION_TOOLS
    if (refused := asker.bounds.refuses_tool(tool.name)) is not None:
        return refused[0]
    highest, level = asker.highest_tier, asker.permission_level
    found = always_refused(
        tool, Setting(rules.scope, highest, level, READY, 0, rules.policies, asker.role)
    )
    return None if found is None else found.rule


def _refusing(
    rules: ToolRules, manifest: Manifest, command: ToolCommand, asker: Asker
) -> str | None:
    can_open = (asker.tools, asker.highest_tier, asker.ptrace, asker.mounts, asker.workspace)
    refused = asker.bounds.refuses_tool(manifest.name) or opening(manifest, *can_open)
    if refused is not None:
        return refused[0]
    if RISK_TIERS.index(command.risk_tier) > RISK_TIERS.index(asker.highest_tier):
        return "risk-tier"
    policies = rules.policies
    if policies is None:
        return None
    name, tier = manifest.tool_name(command.name), command.risk_tier
    for state in _states(manifest):
        facts = CedarFacts(name, state, 0, tier, asker.permission_level, asker.role)
        if policies.refusal(manifest.name, manifest.cedar, facts) is None:
            return None
    return "cedar"


def _states(manifest: Manifest) -> Iterator[str]:
    """Every state to which the manifest's prompts and commands can lead."""
    states = [READY, ERROR, *(state for _, state in manifest.states)]
    states += [command.state for command in manifest.commands.values() if command.state]
    return iter(dict.fromkeys(states))
