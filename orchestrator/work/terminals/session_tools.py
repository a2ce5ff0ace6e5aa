"""The operator's tools from the point of view of one session, or of a level."""

from collections.abc import Iterable

from orchestrator.host.link.messages import malformed
from orchestrator.rules.access.key_bounds import KeyBounds
from orchestrator.rules.access.keys import KeyRing, Principal
from orchestrator.rules.policy.levels import Level
from orchestrator.rules.tools.listing import Asker, ListedTool, list_tools
from orchestrator.rules.tools.tool_rules import ToolRules
from orchestrator.state.session import Session
from orchestrator.state.terms import DEFAULT_ROLE

# An answer has at most as many names.
_MOST_NAMES = 256


class SessionTools:
    """Lists the tools in force."""

    def __init__(self, rules: ToolRules, keys: KeyRing) -> None:
        self._rules = rules
        self._keys = keys

    def of_session(self, principal: Principal, session: Session) -> list[ListedTool]:
        """All tools, and whether the session could be allowed to use each."""
        level = session.level
        asker = Asker(
            level.risk_tier,
            level.name,
            session.terms.role,
            session.terms.tools,
            level.confinement.ptrace,
            _mounts(session),
            self._keys.bounds(principal),
            session.workspace_path,
        )
        return list_tools(self._rules, asker)

    def of_level(self, level: Level, bounds: KeyBounds) -> list[ListedTool]:
        """The same for a session at that level with the usual role, and its level's mounts."""
        asker = Asker(
            level.risk_tier,
            level.name,
            DEFAULT_ROLE,
            None,
            level.confinement.ptrace,
            level.mounts,
            bounds,
        )
        return list_tools(self._rules, asker)


async def absent_programs(session: Session, listed: Iterable[ListedTool]) -> frozenset[str]:
    """The programs of these tools that the sandbox's image lacks.

    Without a sandbox, or with one of an earlier version, it is unknown, and none is reported.
    Raises: SandboxUnavailableError.
    """
    names = sorted({each.program for each in listed if each.allowed and each.program})
    if session.sandbox is None or not names:
        return frozenset()
    if not session.sandbox.link.knows("programs"):
        return frozenset()
    asked = names[:_MOST_NAMES]
    found = (await session.sandbox.link.request("programs", {"names": asked})).get("absent")
    if not isinstance(found, list):
        raise malformed()
    return frozenset(name for name in asked if name in found)


def _mounts(session: Session) -> tuple[str, ...]:
    """The operator's mounts that it has, or will have when it is restored."""
    if session.suspended:
        return (*session.level.mounts, *session.terms.mounts)
    return () if session.sandbox is None else session.sandbox.mounts
