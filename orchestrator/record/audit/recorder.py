"""Records the events of sessions."""

import logging
from collections.abc import Callable, Container, Mapping
from typing import Any

from orchestrator.ground.events import EventDraft, EventError, Made
from orchestrator.ground.log_context import ASKED_AS, asked_as
from orchestrator.ground.metrics import Metrics
from orchestrator.ground.store.effect import Effect, both
from orchestrator.ground.traces.spans import OpenSpan, part, recorded_ids
from orchestrator.ground.traces.traceparent import ids_of
from orchestrator.host.link.ask_tokens import ASKER, AskedBy, AskTokens
from orchestrator.host.link.messages import AgentEvent
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.audit.record_room import RecordRoom, charging
from orchestrator.record.audit.recorded_event import Recorded
from orchestrator.record.audit.refusals import Marks, Refusals
from orchestrator.record.audit.secret_cutting import SecretCutting
from orchestrator.rules.access.break_glass import BreakGlass
from orchestrator.state.session import Session
from paddock.contract.words import Kind
from sandbox_agent.decide import excerpts
from sandbox_agent.decide.protocol import EVENT_MEMBERS

log = logging.getLogger(__name__)

# The events that running programs cause without a request: what they execute, and their terminal
# output.
TOOL_OUTPUT = "pty.output"
_BY_ITSELF = ("command.exec", TOOL_OUTPUT)
_COMMAND, _LAST = "command.start", "session.terminated"
# Who asked an agent for what it reports.
ASKED_BY = "asked_by"
# The access by which an admin did it.
BY_GLASS = "break_glass"
_OWN_ACTORS = ("system", "agent")
# Operations that count as use of a session and restart its idle time-out.
_ACTIVITY = (
    *("command.", "code.", "file.", "pty.", "turn."),
    *("session.create", "session.resume", "session.restored", "session.settings"),
)


class Recorder:
    """Writes audit events with their session's identity. Every call returns once durable.

    Their ledger bytes are counted for their session and its key.
    """

    def __init__(
        self,
        ledger: Ledger,
        metrics: Metrics,
        room: RecordRoom | None = None,
        marks: Marks | None = None,
        glass: BreakGlass | None = None,
    ) -> None:
        """`room` None: there is always room. `marks`: see `Refusals`.

        `glass` knows by which access admins do what they do; None: they need none.
        """
        self._glass = glass
        self._ledger = ledger
        self._metrics = metrics
        self._room = room
        self._of_full: list[Callable[[Session], None]] = []
        self._cutting = SecretCutting()
        self.ask_tokens = AskTokens()
        self._refusals = Refusals(self._record, marks)

    def on_full(self, subscriber: Callable[[Session], None]) -> None:
        """Subscribes to sessions about which nothing more may be recorded.

        Their record has reached its limit, or they keep adding to it when there is no room.
        """
        self._of_full.append(subscriber)

    async def close(self) -> None:
        """Records refusals that were only counted."""
        await self._refusals.close()

    async def cut(self, session: Session, value: Any) -> Any:
        """The JSON value without the session's secrets; a thread removes them from a long value.

        The session may have ended meanwhile. Raises: RateLimitedError if many such calls wait;
        SandboxUnavailableError if it takes too long.
        """
        return await self._cutting.value(session, value)

    def check_room(self, session: Session) -> None:
        """Raises RateLimitedError, CapacityExhaustedError if nothing new may be recorded."""
        if self._room is not None:
            self._room.check(session.owner)

    async def record(
        self,
        session: Session,
        draft: EventDraft,
        effect: Effect | None = None,
        *,
        names: Container[str] | None = None,
    ) -> Recorded:
        """Records one event of the session; `effect` commits with it or neither does.

        The session's secrets are removed from arguments, results and errors; values that are still
        long are recorded as their beginning, size and digest. `made` is recorded unchanged, and so
        are the `names` of members of `args` and `result`, so that they can be found. None: all
        names are ours. A request of a foreign protocol is named in `args.asked_as`. Raises:
        AuditUnavailableError; EventError for values that can't be recorded;
        the errors of `Session.check_live` if the session is over.
        """
        return await self._record(session, _named(draft), effect, names=names)

    async def _record(
        self,
        session: Session,
        draft: EventDraft,
        effect: Effect | None = None,
        *,
        names: Container[str] | None = None,
    ) -> Recorded:
        if session.over.done() and not draft.stop:
            session.check_live()
        operation = draft.operation
        left = await self._refusals.end(session) if operation == _LAST else None
        if left is not None and left.number:
            draft = draft._replace(args={**draft.args, "untold_refusals": left.number})
        draft = self._by_glass(session, draft)
        with part("commit"):
            recorded = await self._ledger.append(_completed(session, draft, names), effect)
        if left is not None:
            left.settle()
        if draft.decision == "deny":
            self._metrics.denied(draft.rule)
        if operation.startswith(_ACTIVITY):
            session.last_activity_at = max(session.last_activity_at, recorded.time)
        self.count(session, recorded.bytes, operation)
        return recorded

    def _by_glass(self, session: Session, draft: EventDraft) -> EventDraft:
        """The draft, marked if an admin causes the event by an access to the session.

        What a command does is marked like its start, also when the access has ended.
        """
        if self._glass is None or not self._glass.required:
            return draft
        access = self._glass.get(session.key, draft.made.args.get(ASKED_BY, draft.actor))
        command = session.commands.get(draft.command_id or "")
        used = None if access is None else access.id
        if command is not None and draft.operation == _COMMAND:
            command.access = used
        elif command is not None and draft.source == "agent":
            used = command.access
        if used is None:
            return draft
        made = draft.made._replace(args={BY_GLASS: used, **draft.made.args})
        return draft._replace(made=made)

    def count(self, session: Session, size: int, operation: str | None = None) -> None:
        """Adds the size of an event or of evidence to what is kept for the session.

        It is negative if that was removed. `operation` of evidence is TOOL_OUTPUT for a tool's
        output, and None for notes about it.
        """
        budget = session.budget
        if self._room is not None:
            self._room.add(session.owner, size)
        if size < 0:
            budget.give_back(Kind.AUDIT_BYTES, -size)
            return
        budget.consume(Kind.AUDIT_BYTES, size)
        full = budget.exceeded is None and budget.left(Kind.AUDIT_BYTES) == 0
        if self._room is not None:
            full = full or (operation in _BY_ITSELF and self._room.stops(session.owner) is not None)
        if full and session.live:
            for subscriber in self._of_full:
                subscriber(session)

    async def refuse(self, session: Session, draft: EventDraft, *, alone: bool = True) -> None:
        """Records a refusal that had no effect; refusals are free.

        Above a rate, identical refusals of a session are counted, and recorded a second later as
        one event with `args.repeats`. Not `alone`: it is always counted. Raises: the errors of
        `check_room`, `cut` and `Session.check_not_ending`, AuditUnavailableError.
        """
        session.check_not_ending()
        self.check_room(session)
        *values, error = await self.cut(session, [*draft.args.values(), draft.error])
        session.check_not_ending()  # check again
        # Shortened, so that what is kept for counting is limited, like what is recorded.
        refusal = _named(draft)._replace(
            decision="deny",
            args=excerpts.excerpts(dict(zip(draft.args, values, strict=True))),
            error=None if error is None else excerpts.text(error),
        )
        await self._refusals.record(session, refusal, alone=alone)

    async def record_often(self, session: Session, draft: EventDraft) -> None:
        """Records an event that can be repeated often without a request.

        Above a rate, identical events of a session are counted, like refusals. The event must be
        short and without secrets. Raises: AuditUnavailableError.
        """
        await self._refusals.record(session, _named(draft))

    async def record_agent_event(
        self, session: Session, event: AgentEvent, effect: Effect | None = None
    ) -> Recorded:
        """Records an event that the sandbox's agent reported. Raises: AuditUnavailableError."""
        args = dict(event.args)
        asker = self.ask_tokens.read(session.key, args.pop(ASKER, None))
        draft = _reported(event, args, asker, _span_of(session, event))
        try:
            # A compromised agent may report members with any other names.
            return await self.record(session, draft, effect, names=EVENT_MEMBERS)
        except EventError as error:
            # The event must be recorded even if its report can't be.
            log.warning("session %s: malformed event of the agent: %s", session.id, error)
            text = f"the agent's report was malformed: {error}"
            bare = draft._replace(rule=None, args={}, result=None, error=text)
            return await self.record(session, bare, effect, names=EVENT_MEMBERS)

    async def record_of_key(self, owner: str, draft: EventDraft, effect: Effect) -> Recorded:
        """Records an event of a key that concerns no single session; the key pays for it.

        Raises: AuditUnavailableError; the errors of `check_room`, except for the record of a stop.
        """
        if self._room is not None and not draft.stop:
            self._room.check(owner)
        with part("commit"):
            recorded = await self._ledger.append(_named(draft), both(effect, charging(owner)))
        if self._room is not None:
            self._room.add(owner, recorded.bytes)
        return recorded

    async def record_system(self, draft: EventDraft, effect: Effect | None = None) -> Recorded:
        """Records an event that concerns no single session; `effect` commits with it.

        Raises: AuditUnavailableError.
        """
        return await self._ledger.append(_named(draft), effect)


def _named(draft: EventDraft) -> EventDraft:
    """The draft with its trace, and the name of the foreign request that its actor sent, if any.

    What the control plane or an agent does in consequence was not asked for by that name.
    """
    named: dict[str, Any] = recorded_ids()
    name = None if draft.actor in _OWN_ACTORS else asked_as()
    if name is not None:
        named[ASKED_AS] = name
    if not named:
        return draft
    return draft._replace(made=draft.made._replace(args={**named, **draft.made.args}))


def _completed(session: Session, draft: EventDraft, names: Container[str] | None) -> EventDraft:
    """The draft with the session's identity, without its secrets, and shortened for recording."""
    cut = session.secrets.cut_members
    result, error = draft.result, draft.error
    return draft._replace(
        session_key=session.key,
        session_id=session.id,
        incarnation=session.incarnation,
        permission_level=session.level.name,
        workspace_root=session.root_dir,
        args=excerpts.excerpts(cut(draft.args, names)),
        result=None if result is None else excerpts.excerpts(cut(result, names)),
        error=None if error is None else excerpts.text(session.secrets.cut(error)),
    )


def _span_of(session: Session, event: AgentEvent) -> OpenSpan | None:
    """The span of the command that an agent's event is about."""
    command = session.commands.get(event.command_id or "")
    return None if command is None else command.span


def _reported(
    event: AgentEvent, args: Mapping[str, Any], asker: AskedBy | None, span: OpenSpan | None
) -> EventDraft:
    """The draft of what an agent did, with the caller that asked it to, and the trace."""
    made = {} if span is None else ids_of(span.place)
    if asker is not None:
        made[ASKED_BY] = asker.actor
    if asker is not None and asker.asked_as is not None:
        made[ASKED_AS] = asker.asked_as
    return EventDraft(
        event.operation,
        actor="agent",
        source="agent",
        decision=event.decision,
        rule=event.rule,
        args=args,
        made=Made(args=made),
        result=event.result,
        error=event.error,
        command_id=event.command_id,
        duration_ms=event.duration_ms,
        agent=(event.boot_id, event.seq),
    )
