"""Decides about a line of input before it reaches a tool, in gates that may each deny it.

The gates, in order: known tool, a text, control characters and sanitizing, the declared pattern,
the effects of a statement, scope and typed arguments, risk tier, Cedar, approval. A line that was
sent as one command but also matches others must satisfy the strictest of them. Otherwise a loose
command would bypass a strict one.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from orchestrator.rules.tools.cedar import CedarFacts, Policies
from orchestrator.rules.tools.line_reader import read_line
from orchestrator.rules.tools.manifest import RISK_TIERS, Manifest, ToolCommand
from orchestrator.rules.tools.patterns import Match
from orchestrator.rules.tools.scope import Scope
from orchestrator.rules.tools.statements import Reading, refusal
from orchestrator.rules.tools.targets import find_targets
from sandbox_agent.decide.manifest import beneath
from sandbox_agent.decide.protocol import KEPT_PREFIX, WORKSPACE_DIR
from sandbox_agent.decide.sanitize import MAX_LINE_BYTES, MAX_TEXT, control_characters, injection

# Rules by which a session may not open a tool, or needs an approval.
SESSION_TOOLS = "session-tools"
ALLOW_PTRACE = "allow-ptrace"
MOUNT = "mount"
COVERED = "workspace-path"
ALLOWED = "allowed"
APPROVAL = "human-approval"
# The maximum length of the path to a copy of an approved file.
_COPY_BYTES = len(KEPT_PREFIX) + 32


class NamedFile(NamedTuple):
    """A file named in a line: its path as written there, and its location."""

    path: str
    start: int
    end: int


class Verdict(NamedTuple):
    """The decision about one line, and its reason.

    `command` is the name of the strictest matching command, empty if none matched. `scope` is "OK"
    if a target was checked and is in scope. `files` are those whose content a person approves
    together with the line, in the order of the line.
    """

    decision: str  # allow | deny | pending
    rule: str
    message: str
    command: str
    matched: tuple[str, ...]  # all commands with a matching pattern
    scope: str | None
    files: tuple[NamedFile, ...] = ()


class Setting(NamedTuple):
    """The session and the rules of a decision.

    `interaction_count` counts earlier interactions. `policies` is None if no policy folder is
    configured. `line_bytes` is the longest line that the tool accepts.
    """

    scope: Scope
    highest_tier: str
    permission_level: str
    session_state: str
    interaction_count: int
    policies: Policies | None
    role: str
    line_bytes: int = MAX_LINE_BYTES


class _DeniedError(Exception):
    def __init__(self, rule: str, message: str) -> None:
        self.rule = rule
        self.message = message


def opening(
    manifest: Manifest,
    tools: Collection[str] | None,
    highest_tier: str,
    ptrace: bool,
    mounts: Collection[str],
    workspace: str = WORKSPACE_DIR,
) -> tuple[str, str] | None:
    """The rule by which a session may not open a tool, and why; None if it may.

    `tools` are the tools that the session may open (None: any), `highest_tier` is its level's tier,
    `ptrace` says whether its level lets programs trace their children, `mounts` are the names of
    the session's mounts, and `workspace` is where its workspace is: no file of a client may stand
    in for one that the tool is meant to have.
    """
    name = manifest.name
    if tools is not None and name not in tools:
        return SESSION_TOOLS, f"this session may not open {name}"
    tiers = [command.risk_tier for command in manifest.commands.values()]
    if all(_rank(tier) > _rank(highest_tier) for tier in tiers):
        return "risk-tier", f"every command of {name} exceeds the level's risk tier {highest_tier}"
    if manifest.allow_ptrace and not ptrace:
        return ALLOW_PTRACE, f"{name} needs a level whose file sets confinement.ptrace"
    missing = [mount for mount in manifest.mounts if mount not in mounts]
    if missing:
        return MOUNT, f"{name} needs a session with the mount {', '.join(missing)}"
    own = (*manifest.argv[:1], *manifest.read, *manifest.execute)
    hidden = [path for path in own if beneath(path, {workspace}) or beneath(workspace, {path})]
    if hidden and workspace != WORKSPACE_DIR:
        return COVERED, f"{name} needs {hidden[0]}, where the session has its workspace"
    return None


def decide(
    manifest: Manifest,
    tool: str,
    text: object,
    setting: Setting,
    reading: Reading | None = None,
) -> Verdict:
    """Decides about one line of input, sent as `tool` ("psql_session.select_query").

    `reading` is the result of `read_line`, if it was already computed off the event loop.
    """
    matched: dict[str, Match] = {}
    scope = None
    files: tuple[NamedFile, ...] = ()
    try:
        declared = _known(manifest, tool)
        line = _text(manifest, text, setting.line_bytes)
        matched.update(_matching(manifest, declared, line))
        _check_statement(declared, reading or read_line(manifest, line))
        commands = [manifest.commands[name] for name in matched]
        scope = _check_targets(commands, matched, line, setting.scope)
        if (reason := tier_refusal(_tier(commands), setting)) is not None:
            raise _DeniedError("risk-tier", reason)
        _check_policies(manifest, commands, setting)
    except _DeniedError as denied:
        decision, rule, message = "deny", denied.rule, denied.message
    else:
        decision, rule, message = _approval(commands)
        if decision == "pending":
            files = _files(manifest, matched, line, setting.line_bytes)
    names = tuple(matched)
    governing = _governing(manifest, names)
    return Verdict(decision, rule, message, governing, names, scope, files)


def _known(manifest: Manifest, tool: str) -> ToolCommand:
    name, _, command = tool.partition(".")
    if name != manifest.name or command not in manifest.commands:
        known = ", ".join(map(manifest.tool_name, manifest.commands)) or "none"
        raise _DeniedError("unknown-tool", f"there is no tool {tool[:128]}; there are: {known}")
    return manifest.commands[command]


def _text(manifest: Manifest, text: object, line_bytes: int) -> str:
    if not isinstance(text, str) or not text:
        raise _DeniedError("command-type", "command must be a text, and not empty")
    if len(text) > MAX_TEXT:
        raise _DeniedError("too-long", f"command has more than {MAX_TEXT} characters")
    if (reason := control_characters(text)) is not None:
        raise _DeniedError("control-character", reason)
    if (size := len(text.encode())) > line_bytes:
        message = f"the line has {size} bytes; this tool takes {line_bytes} now"
        raise _DeniedError("too-long", message)
    if manifest.sanitize_injection and (reason := injection(text)) is not None:
        raise _DeniedError("input-sanitize", reason)
    return text


def _matching(manifest: Manifest, declared: ToolCommand, text: str) -> dict[str, Match]:
    """Every command whose pattern matches, by name; the declared command must be one of them."""
    found = {}
    for name, command in manifest.commands.items():
        match = command.pattern.fullmatch(text)
        if match is not None:
            found[name] = match
    if declared.name not in found:
        others = ", ".join(map(manifest.tool_name, found))
        hint = f"; it is {others}" if others else ""
        pattern = declared.pattern.text
        message = f"the text does not match {manifest.tool_name(declared.name)}: {pattern}{hint}"
        raise _DeniedError("pattern", message)
    return found


def _check_statement(declared: ToolCommand, reading: Reading | None) -> None:
    """A command's declaration limits what it does, whatever its pattern matches."""
    if reading is not None and (reason := refusal(reading, declared)) is not None:
        raise _DeniedError("statement", reason)


def _check_targets(
    commands: Sequence[ToolCommand], matched: Mapping[str, Match], text: str, scope: Scope
) -> str | None:
    """Checks every target and typed argument of every matching command."""
    checked = None
    for command in commands:
        match = matched[command.name]
        if command.extract_target:
            checked = "OK"
            _check_extracted(find_targets(command.pattern, match, text), scope)
        for argument in command.args:
            value = match.named.get(argument.name)
            reason = argument.refusal(value, scope)
            if argument.type == "scope_target" or argument.scope_check:
                if reason is not None:
                    raise _DeniedError("scope", reason)
                checked = "OK" if value else checked
            elif reason is not None:
                raise _DeniedError("argument", reason)
    return checked


def _check_extracted(targets: Sequence[str], scope: Scope) -> None:
    if not targets:
        raise _DeniedError("scope", "the text names no target")
    for target in targets:
        if (reason := scope.refusal(target)) is not None:
            raise _DeniedError("scope", reason)


def tier_refusal(tier: str, setting: Setting) -> str | None:
    """Why the session's level does not allow a tier; None if it does. No policy extends this."""
    level, highest = setting.permission_level, setting.highest_tier
    if highest in RISK_TIERS and _rank(tier) <= _rank(highest):
        return None
    return f"risk tier {tier} exceeds what permission level {level} allows: {highest}"


def _check_policies(manifest: Manifest, commands: Sequence[ToolCommand], setting: Setting) -> None:
    """Every matching command must be permitted, at the strictest command's tier."""
    if setting.policies is None:
        return
    for command in commands:
        facts = CedarFacts(
            manifest.tool_name(command.name),
            setting.session_state,
            setting.interaction_count,
            _tier(commands),
            setting.permission_level,
            setting.role,
        )
        if (reason := setting.policies.refusal(manifest.name, manifest.cedar, facts)) is not None:
            raise _DeniedError("cedar", f"{facts.tool_name}: {reason}")


def _approval(commands: Sequence[ToolCommand]) -> tuple[str, str, str]:
    needing = [command.name for command in commands if command.human_approval]
    if needing:
        return "pending", APPROVAL, f"a person must approve {', '.join(needing)}"
    return "allow", ALLOWED, "allowed"


def _files(
    manifest: Manifest, matched: Mapping[str, Match], text: str, line_bytes: int
) -> tuple[NamedFile, ...]:
    """The files named by the bound arguments of all commands; copies replace them in the line."""
    named = {
        NamedFile(path, *match.spans[argument.name])
        for name, match in matched.items()
        for argument in manifest.commands[name].args
        if argument.bind and (path := match.named.get(argument.name))
    }
    size = len(text.encode()) + len(named) * _COPY_BYTES
    if named and size > line_bytes:
        message = (
            f"with the paths of copies the line may have {size} bytes; this tool takes {line_bytes}"
        )
        raise _DeniedError("too-long", message)
    return tuple(sorted(named, key=lambda file: file.start))


def _governing(manifest: Manifest, names: Sequence[str]) -> str:
    """The strictest command; among equals, the first in the manifest."""

    def strictness(name: str) -> tuple[int, bool, bool, bool]:
        command = manifest.commands[name]
        return (
            _rank(command.risk_tier),
            command.human_approval,
            command.extract_target,
            bool(command.args),
        )

    return max(names, key=strictness, default="")


def _tier(commands: Sequence[ToolCommand]) -> str:
    return max((command.risk_tier for command in commands), key=_rank)


def _rank(tier: str) -> int:
    return RISK_TIERS.index(tier)
