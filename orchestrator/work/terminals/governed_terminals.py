"""Terminals of declared tools: combines manifest, gates, approvals and terminals."""

from functools import partial

from orchestrator.ground.errors import NotFoundError, PermissionDeniedError
from orchestrator.ground.events import EventDraft, Made
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import KeyRing, Principal
from orchestrator.rules.tools.gates import Setting, Verdict, decide, opening
from orchestrator.rules.tools.line_reader import LineReader
from orchestrator.rules.tools.manifest import Manifest
from orchestrator.rules.tools.schemas import result_problem
from orchestrator.rules.tools.states import next_state
from orchestrator.rules.tools.tool_rules import ToolRules
from orchestrator.sandbox.packs.decisions import outside_pack
from orchestrator.state.session import Session
from orchestrator.work.approvals.approvals import Approvals
from orchestrator.work.files.files import Files
from orchestrator.work.terminals import spec as specs
from orchestrator.work.terminals.line_approvals import LineApprovals
from orchestrator.work.terminals.line_record import Exchange
from orchestrator.work.terminals.terminal_record import TerminalRecord
from orchestrator.work.terminals.terminals import Terminals


class GovernedTerminals:
    """Opens tools of the catalog; each line is decided by the manifest with which it was opened."""

    def __init__(
        self,
        rules: ToolRules,
        keys: KeyRing,
        terminals: Terminals,
        approvals: Approvals,
        files: Files,
        recorder: Recorder,
    ) -> None:
        self._rules = rules
        self._keys = keys
        self._terminals = terminals
        self._line_approvals = LineApprovals(approvals, files)
        self._recorder = recorder
        self._reader = LineReader()

    async def close(self) -> None:
        """Ends the rest of abandoned requests."""
        await self._reader.close()

    async def open(self, principal: Principal, session: Session, tool: str) -> TerminalRecord:
        """A terminal of that tool.

        Raises: NotFoundError, PermissionDeniedError with the rule, and the errors of
        `Terminals.open`.
        """
        sandbox = session.check_open()
        session.secrets.check()
        manifest = self._rules.catalog.get(tool)
        if manifest is None:
            raise NotFoundError(f"there is no tool {tool[:128]}")
        level = session.level
        ptrace = level.confinement.ptrace
        terms, place = session.terms, session.workspace_path
        refused = opening(manifest, terms.tools, level.risk_tier, ptrace, sandbox.mounts, place)
        refused = self._keys.bounds(principal).refuses_tool(manifest.name) or refused
        refused = refused or outside_pack(session.pack, manifest.name)
        if refused is not None:
            rule, message = refused
            await self._recorder.refuse(
                session,
                EventDraft(
                    "pty.open",
                    actor=principal.name,
                    rule=rule,
                    args={"tool": manifest.name},
                    made=Made({"manifest_sha256": manifest.sha256}),
                    error=message,
                ),
            )
            raise PermissionDeniedError(message, rule=rule)
        return await self._terminals.open(principal, session, terminal_spec(manifest))

    async def interact(
        self,
        principal: Principal,
        session: Session,
        terminal_id: str,
        tool: str,
        text: str,
        wait: float,
    ) -> Exchange:
        """The result of a line that the gates allow; `wait` is the time for a person, in seconds.

        Until a person decides, it is `pending`, with its `approval`; sending the same line again
        asks again. Raises: the errors of `Terminals.interact`.
        """
        manifest = (await self._terminals.spec(session, terminal_id)).manifest
        if manifest is None:
            raise PermissionDeniedError("this terminal takes no lines", rule="unknown-tool")
        reading = await self._reader.read(session.key, manifest, text)

        def gates(situation: specs.Situation) -> Verdict:
            return decide(manifest, tool, text, self._setting(session, situation), reading)

        sent = specs.SentLine(principal, session, terminal_id, tool, text)
        ask = partial(self._line_approvals.ask, sent, manifest, wait)
        return await self._terminals.interact(sent, gates, ask)

    def _setting(self, session: Session, situation: specs.Situation) -> Setting:
        return Setting(
            scope=self._rules.scope,
            highest_tier=session.level.risk_tier,
            permission_level=session.level.name,
            session_state=situation.session_state,
            interaction_count=situation.interaction_count,
            policies=self._rules.policies,
            role=session.terms.role,
            line_bytes=situation.line_bytes,
        )


def terminal_spec(manifest: Manifest) -> specs.TerminalSpec:
    """A terminal's specification, from the manifest to which it is pinned."""

    return specs.TerminalSpec(
        tool=manifest.name,
        manifest_sha256=manifest.sha256,
        startup_command=manifest.startup_command,
        argv=manifest.argv,
        env=manifest.env,
        ready=manifest.ready_pattern,
        line_terminator=manifest.line_terminator,
        sanitize=("injection",) if manifest.sanitize_injection else (),
        commands=tuple(manifest.commands),
        output_max_bytes=manifest.output_max_bytes,
        output_wait_ms=manifest.output_wait_ms,
        startup_timeout_seconds=manifest.startup_timeout_seconds,
        idle_timeout_seconds=manifest.idle_timeout_seconds,
        session_timeout_seconds=manifest.session_timeout_seconds,
        max_interactions=manifest.max_interactions,
        infer_state=partial(next_state, manifest),
        result_problem=partial(result_problem, manifest.output_schema),
        manifest=manifest,
        capture=manifest.capture,
        recorded=manifest.capture,
        evidence_name=manifest.evidence_name,
        needs=specs.Needs(
            execute=manifest.execute,
            read=manifest.read,
            writable_code=manifest.writable_code,
            ptrace=manifest.allow_ptrace,
        ),
    )
