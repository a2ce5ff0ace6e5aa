"""A command with an unknown end is recorded as ended once, whatever fails meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.ground.errors import AuditUnavailableError, ConflictError
from orchestrator.ground.events import EventDraft
from orchestrator.ground.threads import Aside
from orchestrator.record.audit.gaps import Gaps
from orchestrator.record.audit.stop_records import StopRecords
from orchestrator.state.command import Command
from orchestrator.work.commands.execution import Executions
from tests.support.until import until


class Record:
    """A ledger that answers when the test decides, and as it decides."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.written: list[str] = []
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def record(self, _session: object, draft: EventDraft, _effect: object = None) -> Any:
        self.asked.append(draft.operation)
        if draft.operation == "command.exit":
            await self.answer
        self.written.append(draft.operation)
        return SimpleNamespace(seq=1, hash="x", time="now", event={"error": "lost"})


@pytest.fixture
async def record() -> Record:
    return Record()


@pytest.fixture
async def stops() -> AsyncIterator[StopRecords]:
    stops = StopRecords()
    yield stops
    await stops.close()


def started() -> tuple[Any, Command]:
    """A session with one command that its agent does not know."""
    command = Command("c1", ["x"], False, "", asyncio.get_running_loop().create_future())
    command.dispatched = True
    link = SimpleNamespace(request=_nothing_runs, settled=_settled)
    members = {"key": "k", "live": True, "sandbox": SimpleNamespace(link=link)}
    return SimpleNamespace(id="s", running=[command], **members), command


async def _nothing_runs(*_: object) -> dict[str, Any]:
    return {"running": []}


async def _settled() -> None:
    """Returns at once, as if everything were recorded."""


def executions(record: Record) -> Executions:
    nobody = cast(Any, None)
    return Executions(cast(Any, record), nobody, nobody, nobody, {}, Aside())


@pytest.mark.parametrize("fails", [True, False])
async def test_a_sandbox_that_goes_while_a_loss_is_recorded(
    record: Record, stops: StopRecords, fails: bool
) -> None:
    session, command = started()
    losing = asyncio.create_task(executions(record).reconcile(session))
    await until(lambda: record.asked == ["command.exit"])
    closing = asyncio.create_task(Gaps(cast(Any, record), stops).close(session, []))
    await until(lambda: bool(stops._queues))
    if fails:
        record.answer.set_exception(AuditUnavailableError("the disk hangs"))
        with pytest.raises(AuditUnavailableError):
            await losing
    else:
        record.answer.set_result(None)
        await losing
    await closing
    assert command.ended
    assert record.written == ["audit.gap" if fails else "command.exit"]


async def test_what_was_refused_and_is_not_on_record_is_tried_again(
    record: Record, stops: StopRecords
) -> None:
    session, command = started()

    async def refuse(*_: object) -> None:
        raise ConflictError("not now")

    sandbox = SimpleNamespace(freezing=None)
    held = SimpleNamespace(check=lambda: None, go=refuse, drop=lambda: None)
    session.check_open = lambda: sandbox
    record.answer.set_exception(AuditUnavailableError("the disk hangs"))
    ours = executions(record)
    with pytest.raises(AuditUnavailableError):
        await ours._dispatch(session, cast(Any, sandbox), command, cast(Any, held))
    assert not command.ended
    record.answer = asyncio.get_running_loop().create_future()
    record.answer.set_result(None)
    await ours.reconcile(session)
    assert command.ended
    assert record.written == ["command.exit"]
