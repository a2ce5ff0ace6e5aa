"""Oneshot tools of a session: decided by their manifests, run as commands of the level."""

from collections.abc import Mapping
from dataclasses import replace

from orchestrator.errors import NotFoundError, PermissionDeniedError
from orchestrator.keys import KeyRing, Principal
from orchestrator.sessions.recorder import Recorder
from orchestrator.sessions.requests import ExecRequest
from orchestrator.sessions.session import Session
from orchestrator.tools.gates import SESSION_TOOLS, Setting
from orchestrator.tools.oneshot import Oneshot, Refused, argv, refusal
from orchestrator.tools.rules import ToolRules
from orchestrator.tools.states import READY


class GovernedCommands:
    """Makes a command of a oneshot tool and its arguments; the level's rules come on top."""

    def __init__(self, rules: ToolRules, keys: KeyRing, recorder: Recorder) -> None:
        self._rules = rules
        self._keys = keys
        self._recorder = recorder

    async def request(
        self,
        principal: Principal,
        session: Session,
        name: str,
        arguments: Mapping[str, str],
        request: ExecRequest,
    ) -> ExecRequest:
        """The request with the words of the tool's command.

        Raises: NotFoundError, PermissionDeniedError with the rule, what `Recorder.refuse` does.
        """
        tool = self._rules.catalog.oneshots.get(name)
        if tool is None:
            raise NotFoundError(f"there is no oneshot tool {name[:128]}")
        refused = self._refusal(principal, session, tool, arguments)
        if refused is not None:
            await self._recorder.refuse(
                session,
                "command.start",
                actor=principal.name,
                rule=refused.rule,
                args={
                    "tool": tool.name,
                    "manifest_sha256": tool.sha256,
                    "arguments": dict(arguments),
                },
                error=refused.message,
            )
            raise PermissionDeniedError(refused.message, rule=refused.rule)
        most = tool.timeout_seconds
        timeout = min(most, session.level.timeout_max) if request.timeout is None else None
        return replace(
            request,
            argv=argv(tool, arguments),
            tool=tool.name,
            timeout=timeout or min(most, request.timeout or most),
        )

    def _refusal(
        self, principal: Principal, session: Session, tool: Oneshot, arguments: Mapping[str, str]
    ) -> Refused | None:
        if session.tools is not None and tool.name not in session.tools:
            return Refused(SESSION_TOOLS, f"this session may not use {tool.name}")
        if (bound := self._keys.bounds(principal).refuses_tool(tool.name)) is not None:
            return Refused(*bound)
        setting = Setting(
            scope=self._rules.scope,
            highest_tier=session.level.risk_tier,
            permission_level=session.level.name,
            session_state=READY,
            interaction_count=0,
            policies=self._rules.policies,
            role=session.role,
        )
        return refusal(tool, arguments, setting)
