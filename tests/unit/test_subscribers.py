"""The subscribers that receive messages of sandbox agents, their order, and failures."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.ground.errors import AuditUnavailableError, PaddockError
from orchestrator.host.link.messages import AgentEvent
from orchestrator.record.audit.budgets import AgentEvents
from orchestrator.record.audit.recorded_event import Recorded
from orchestrator.sandbox.sandboxes.subscribers import Subscribers
from orchestrator.state.session import Session
from sandbox_agent.decide.protocol import AGENT_OPERATIONS
from tests.support.until import until

SESSION = cast(Session, SimpleNamespace(id="s", key="k"))
RECORDED = cast(Recorded, SimpleNamespace(seq=1))


class BrokenError(Exception):
    """Raised by a subscriber."""


class Log:
    """The events, in order."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.refusal: PaddockError | None = None

    async def record(self, _session: Session, event: AgentEvent) -> tuple[AgentEvent, Recorded]:
        await asyncio.sleep(0)
        if self.refusal is not None:
            raise self.refusal
        self.said.append(f"recorded {event.operation}")
        return event, RECORDED

    def note(self, name: str) -> Callable[..., None]:
        return lambda *_: self.said.append(name)

    def note_later(self, name: str) -> Callable[..., Awaitable[None]]:
        async def note(*_: object) -> None:
            await asyncio.sleep(0)
            self.said.append(name)

        return note


def fail(*_: object) -> None:
    raise BrokenError


async def fail_later(*_: object) -> None:
    raise BrokenError


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def subscribers(log: Log) -> Subscribers:
    return Subscribers(log.record)


def event(operation: str) -> AgentEvent:
    return AgentEvent("b" * 16, 1, operation, None, None, None, {}, None, None, None)


async def test_an_event_is_on_record_before_anybody_hears_of_it(
    log: Log, subscribers: Subscribers
) -> None:
    heard: list[Any] = []
    subscribers.on_event(log.note("one"), "pty.exit")
    subscribers.on_event(lambda *told: heard.append(told), "pty.exit")
    told = event("pty.exit")
    await subscribers.event(SESSION, told)
    assert log.said == ["recorded pty.exit", "one"]
    assert heard == [(SESSION, told, RECORDED)]


async def test_nobody_acts_on_an_event_that_is_not_on_record(
    log: Log, subscribers: Subscribers
) -> None:
    subscribers.on_event(log.note("one"))
    log.refusal = AuditUnavailableError("full")
    with pytest.raises(AuditUnavailableError):
        await subscribers.event(SESSION, event("pty.exit"))
    assert log.said == []


async def test_events_are_told_by_their_operations(log: Log, subscribers: Subscribers) -> None:
    subscribers.on_event(log.note("all"))
    subscribers.on_event(log.note("files"), "file.read", "file.write")
    for operation in sorted(AGENT_OPERATIONS):
        log.said.clear()
        await subscribers.event(SESSION, event(operation))
        files = ["files"] if operation in ("file.read", "file.write") else []
        assert log.said == [f"recorded {operation}", "all", *files]


def test_an_operation_that_no_agent_reports_can_not_be_subscribed_to(
    subscribers: Subscribers,
) -> None:
    with pytest.raises(ValueError, match=r"no agent reports command\.start"):
        subscribers.on_event(fail, "command.exit", "command.start")


async def test_messages_are_told_in_the_order_of_subscription(
    log: Log, subscribers: Subscribers
) -> None:
    for name in ("one", "two"):
        subscribers.on_hello(log.note(f"hello {name}"))
        subscribers.on_violation(log.note_later(f"violation {name}"))
        subscribers.on_gone(log.note_later(f"gone {name}"))
        subscribers.on_end(log.note_later(f"ended {name}"))
    subscribers.hello(SESSION, cast(Any, None))
    await subscribers.violation(SESSION, "garbage")
    await subscribers.gone(cast(Any, None))
    await subscribers.ended(SESSION)
    messages = ("hello", "violation", "gone", "ended")
    expected = [f"{message} {name}" for message in messages for name in ("one", "two")]
    assert log.said == expected


async def test_a_failure_is_the_sender_s_and_nobody_after_it_is_told(
    log: Log, subscribers: Subscribers
) -> None:
    """After the failure, the link drops its agent, which sends the event again."""
    subscribers.on_event(fail)
    subscribers.on_event(log.note("event"))
    subscribers.on_hello(fail)
    subscribers.on_hello(log.note("hello"))
    subscribers.on_violation(fail_later)
    subscribers.on_violation(log.note_later("violation"))
    subscribers.on_gone(fail_later)
    subscribers.on_gone(log.note_later("gone"))
    with pytest.raises(BrokenError):
        await subscribers.event(SESSION, event("pty.exit"))
    with pytest.raises(BrokenError):
        subscribers.hello(SESSION, cast(Any, None))
    with pytest.raises(BrokenError):
        await subscribers.violation(SESSION, "garbage")
    with pytest.raises(BrokenError):
        await subscribers.gone(cast(Any, None))
    assert log.said == ["recorded pty.exit"]


async def test_a_session_over_its_budget_ends_whatever_the_ledger_says() -> None:
    ended: list[Session] = []

    class Budgets:
        def take(self, _session: Session, event: AgentEvent) -> tuple[AgentEvent, None]:
            return event, None

        async def end(self, session: Session) -> None:
            ended.append(session)

    class Full:
        async def record_agent_event(self, *_: object) -> Recorded:
            raise AuditUnavailableError("full")

    events = AgentEvents(cast(Any, Full()), cast(Any, Budgets()))
    with pytest.raises(AuditUnavailableError):
        await events.record(SESSION, event("command.exit"))
    with pytest.raises(AuditUnavailableError):
        await events.record(SESSION, event("budget.exceeded"))
    await until(lambda: ended == [SESSION])
    await events.close()
