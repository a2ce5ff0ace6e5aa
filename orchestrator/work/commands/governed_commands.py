"""Oneshot tools of a session: decided by their manifests, run as commands of the level."""

import secrets
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import NoReturn

from orchestrator.ground.errors import (
    NotFoundError,
    PaddockError,
    PermissionDeniedError,
    SandboxUnavailableError,
    ValidationError,
)
from orchestrator.ground.events import EventDraft, Made
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import KeyRing, Principal
from orchestrator.rules.tools.gates import APPROVAL, SESSION_TOOLS, Setting
from orchestrator.rules.tools.oneshot import (
    ANY_RUN,
    Oneshot,
    Refused,
    Run,
    argv,
    refusal,
    writes_file,
)
from orchestrator.rules.tools.states import READY
from orchestrator.rules.tools.tool_rules import ToolRules
from orchestrator.state.command import Command
from orchestrator.state.requests import ExecRequest, Kept
from orchestrator.state.session import Session
from orchestrator.work.approvals.approval_rows import Approval
from orchestrator.work.approvals.approvals import NO_TERMINAL, Approvals, Line
from orchestrator.work.commands.captures import Captures
from orchestrator.work.commands.execution import Executions
from sandbox_agent.decide.sanitize import MAX_TEXT

# By the output format in the manifest.
_ENDINGS = {"text": "txt"}


class GovernedCommands:
    """Makes commands of oneshot tools and arguments; the level's rules still apply to them."""

    def __init__(
        self,
        rules: ToolRules,
        keys: KeyRing,
        recorder: Recorder,
        executions: Executions,
        approvals: Approvals,
        captures: Captures,
    ) -> None:
        self._rules = rules
        self._keys = keys
        self._recorder = recorder
        self._executions = executions
        self._approvals = approvals
        self._captures = captures

    async def request(
        self,
        principal: Principal,
        session: Session,
        name: str,
        arguments: Mapping[str, str],
        request: ExecRequest,
        wait: float,
    ) -> ExecRequest | Approval:
        """The request with the words of the tool's command, for `start`.

        Returns the approval instead if one is required and not given within `wait` seconds. Raises:
        NotFoundError, PermissionDeniedError with the rule, ValidationError, BusyError,
        ConflictError if another call received the answer, AuditUnavailableError, and the errors of
        `Session.check_open`.
        """
        tool, request = await self._decided(principal, session, name, arguments, request)
        if not tool.human_approval:
            return request
        _check_alone(request)
        await self._executions.check(principal, session, request)
        asked = argv(tool, arguments, ANY_RUN)
        text = shlex.join(asked)
        if len(text) > MAX_TEXT:
            message = f"nobody can approve a command of more than {MAX_TEXT} characters"
            await self._refuse(principal, session, tool, arguments, Refused("too-long", message))
        line = Line(NO_TERMINAL, tool.name, text, tool.risk_tier)
        approval = await self._asked(principal, session, line, wait)
        if approval.status == "pending":
            return approval
        if approval.status != "approved":
            reason = f": {approval.reason}" if approval.reason else ""
            message = f"the approval {approval.id} is {approval.status}{reason}"
            await self._refuse(principal, session, tool, arguments, Refused(APPROVAL, message))
        # The rules and the manifest may have changed.
        tool, again = await self._decided(principal, session, name, arguments, request)
        if argv(tool, arguments, ANY_RUN) != asked:
            message = (
                "the tool's manifest has changed since the approval was requested: request it again"
            )
            await self._refuse(principal, session, tool, arguments, Refused(APPROVAL, message))
        return replace(again, approval=approval.id)

    async def start(self, principal: Principal, session: Session, request: ExecRequest) -> Command:
        """Starts it; an approved command only once.

        Raises: ConflictError if another call has used the approval; the errors of
        `Executions.start`.
        """
        kept = request.kept
        if kept is None:  # a command without a tool
            return await self._start(principal, session, request)
        if kept.file is not None:
            await self._executions.check(principal, session, request)
        async with self._captures.following(principal, session, kept):
            return await self._start(principal, session, request)

    async def _start(self, principal: Principal, session: Session, request: ExecRequest) -> Command:
        if request.approval is None:
            return await self._executions.start(principal, session, request)
        session.check_open()
        approval, ran = request.approval, True
        self._approvals.use(approval)
        try:
            return await self._executions.start(principal, session, request)
        except SandboxUnavailableError:  # it may be running
            raise
        except PaddockError:
            ran = False
            raise
        finally:
            self._approvals.settle(approval, ran)

    async def _asked(
        self, principal: Principal, session: Session, line: Line, wait: float
    ) -> Approval:
        approval = await self._approvals.obtain(session, line, principal.name, 0)
        try:
            session.check_open()
        except PaddockError:  # it ended meanwhile, and nothing else would expire the approval
            await self._approvals.expire_ended()
            raise
        if approval.status == "pending" and wait > 0:
            approval = await self._approvals.obtain(session, line, principal.name, wait)
        return approval

    async def _decided(
        self,
        principal: Principal,
        session: Session,
        name: str,
        arguments: Mapping[str, str],
        request: ExecRequest,
    ) -> tuple[Oneshot, ExecRequest]:
        """The tool, and the request with the words of its command.

        Raises: NotFoundError, PermissionDeniedError with the rule, and the errors of
        `Session.check_open`, `SessionSecrets.give` and `Recorder.refuse`.
        """
        session.check_open()
        session.secrets.check()
        # Before the decision, so that refusals, too, are recorded and reported without the secrets.
        session.secrets.give(request.secrets)
        tool = self._rules.catalog.oneshots.get(name)
        if tool is None:
            raise NotFoundError(f"there is no oneshot tool {name[:128]}")
        refused = self._refusal(principal, session, tool, arguments)
        if refused is not None:
            await self._refuse(principal, session, tool, arguments, refused)
        most = tool.timeout_seconds
        timeout = min(most, session.level.timeout_max) if request.timeout is None else None
        command_id = secrets.token_hex(8)
        kept = _kept(tool, command_id)
        file = "" if kept.file is None else f"{session.workspace_path}/{kept.file}"
        return tool, replace(
            request,
            argv=argv(tool, arguments, Run(command_id, file)),
            kept=kept,
            tool=tool.name,
            timeout=timeout or min(most, request.timeout or most),
        )

    async def _refuse(
        self,
        principal: Principal,
        session: Session,
        tool: Oneshot,
        arguments: Mapping[str, str],
        refused: Refused,
    ) -> NoReturn:
        await self._recorder.refuse(
            session,
            EventDraft(
                "command.start",
                actor=principal.name,
                rule=refused.rule,
                args={"tool": tool.name, "arguments": dict(arguments)},
                made=Made({"manifest_sha256": tool.sha256}),
                error=refused.message,
            ),
        )
        raise PermissionDeniedError(refused.message, rule=refused.rule)

    def _refusal(
        self, principal: Principal, session: Session, tool: Oneshot, arguments: Mapping[str, str]
    ) -> Refused | None:
        if session.terms.tools is not None and tool.name not in session.terms.tools:
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
            role=session.terms.role,
        )
        return refusal(tool, arguments, setting)


def _kept(tool: Oneshot, command_id: str) -> Kept:
    """The evidence to keep for the tool's command with that id."""
    if not writes_file(tool):
        return Kept(command_id, None, tool.capture is True, tool.evidence_name)
    ending = _ENDINGS.get(tool.format, tool.format)
    file = f".paddock-{command_id}/output.{ending}"
    return Kept(command_id, file, tool.capture is not False, tool.evidence_name)


def _check_alone(request: ExecRequest) -> None:
    """A person reads only the words, so nothing else may change what they do."""
    for field, given in (
        ("cwd", request.cwd),
        ("stdin", request.stdin),
        ("stdin_open", request.stdin_open),
        ("secrets", request.secrets),
    ):
        if given:
            message = "can't be given with a tool that a person must approve"
            raise ValidationError(f"{field} {message}", field=field)
