"""Refusals are recorded or counted; few are kept in memory, and none is lost."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.ground.errors import AuditUnavailableError
from orchestrator.ground.events import EventDraft
from orchestrator.ground.metrics import Metrics
from orchestrator.record.audit import refusals as module
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.audit.recorder import Recorder
from orchestrator.record.audit.refusals import Refusals
from orchestrator.state.session import Session
from orchestrator.state.session_secrets import SessionSecrets, StoredSecrets
from tests.support.until import until


class Forgetful(Recorder):
    """Does not keep what it records."""

    async def _record(self, *_draft: Any, **_effect: Any) -> Any:
        """Counts as recorded."""


def a_session() -> Session:
    secrets = SessionSecrets(StoredSecrets(), {})
    over = asyncio.get_running_loop().create_future()
    members = {"key": "k", "id": "s", "secrets": secrets, "over": over}
    return cast(Session, SimpleNamespace(**members, check_not_ending=lambda: None))


class Disk:
    """The recorded and marked refusals; while it is `full`, it accepts nothing new."""

    def __init__(self) -> None:
        self.full = False
        self.told: list[int] = []
        self.marked = False
        self.tried = 0

    async def record(self, session: Session, draft: EventDraft) -> None:
        await asyncio.sleep(0)
        self._check()
        self.told.append(draft.args.get("repeats", 1))

    async def set(self, session_key: str) -> None:
        self._check()
        self.marked = True

    async def clear(self, session_key: str) -> None:
        self._check()
        self.marked = False

    def _check(self) -> None:
        self.tried += 1
        if self.full:
            raise AuditUnavailableError("the disk is full")


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
async def session() -> Session:
    return a_session()


@pytest.fixture
async def refusals(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Refusals]:
    """Every similar refusal after the first is counted, and reported on demand."""
    monkeypatch.setattr(module, "_BURST", 1)
    monkeypatch.setattr(module, "_RATE", 0)
    monkeypatch.setattr(module, "_SECONDS", 3600)
    kept = Refusals(disk.record, disk)
    yield kept
    disk.full = False
    await kept.close()


async def refuse(refusals: Refusals, session: Session, number: int, what: str = "a") -> None:
    for _ in range(number):
        await refusals.record(session, EventDraft("command.start", "a", args={"argv": [what]}))


async def test_what_is_kept_of_long_refusals_is_bounded() -> None:
    recorder = Forgetful(cast(Ledger, None), cast(Metrics, None))
    session = a_session()
    tracemalloc.start()
    for number in range(200):
        argv = [*(["x" * 1000] * 200), str(number)]
        await recorder.refuse(
            session,
            EventDraft(
                "command.start", actor="a", rule="r", args={"argv": argv}, error=f"{number}" * 5000
            ),
        )
    del argv
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 4_000_000
    await recorder.close()


async def test_what_a_failed_write_has_not_told_is_told_later(
    refusals: Refusals, session: Session, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SECONDS", 0)
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0)
    await refuse(refusals, session, 3)
    disk.full = True
    tried = disk.tried
    await until(lambda: disk.tried > tried + 2)  # it keeps trying
    assert disk.told == [1]
    await refuse(refusals, session, 4)  # it keeps counting
    disk.full = False
    await until(lambda: sum(disk.told) == 7 and not disk.marked)
    assert disk.told[0] == 1
    assert refusals._counted["k"].task is None


async def test_closing_tells_what_is_counted_also_while_it_is_being_told(
    refusals: Refusals, session: Session, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SECONDS", 0)
    await refuse(refusals, session, 5)
    await asyncio.sleep(0)  # the report has begun
    await refusals.close()
    assert sum(disk.told) == 5
    assert not disk.marked


async def test_closing_while_nothing_can_be_written_leaves_the_mark(
    refusals: Refusals, session: Session, disk: Disk
) -> None:
    await refuse(refusals, session, 5)
    disk.full = True
    await refusals.close()
    assert disk.told == [1]
    assert disk.marked


async def test_an_end_tells_what_was_counted(
    refusals: Refusals, session: Session, disk: Disk
) -> None:
    await refuse(refusals, session, 5)
    untold = await refusals.end(session)
    assert (untold.number, disk.told) == (0, [1, 4])
    untold.settle()
    session.over.set_result(None)
    await refusals.close()
    assert disk.told == [1, 4]
    assert refusals._counted == {}


async def test_an_end_takes_along_the_number_of_what_can_not_be_told(
    refusals: Refusals, session: Session, disk: Disk
) -> None:
    await refuse(refusals, session, 5)
    disk.full = True
    untold = await refusals.end(session)
    assert untold.number == 4
    disk.full = False  # the end can be recorded now
    await refuse(refusals, session, 2)
    untold.settle()
    await refusals.close()
    assert disk.told == [1, 2]


async def test_nothing_is_kept_of_a_session_that_is_over(
    refusals: Refusals, session: Session
) -> None:
    await refuse(refusals, session, 1)
    session.over.set_result(None)
    await until(lambda: refusals._counted == {})


async def test_a_refusal_that_is_counted_is_marked_before_anybody_hears_of_it(
    refusals: Refusals, session: Session, disk: Disk
) -> None:
    await refuse(refusals, session, 1)
    disk.full = True
    for _ in range(2):
        with pytest.raises(AuditUnavailableError):
            await refuse(refusals, session, 1)
    disk.full = False
    assert not disk.marked
    await refuse(refusals, session, 1)
    assert disk.marked
    await refusals.close()
    assert disk.told == [1, 3]
