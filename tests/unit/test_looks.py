"""Looks at processes: one at a time per sandbox, and a limited share of the time for all."""

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.host.node.local_node import LocalNode
from orchestrator.host.node.processes import Earlier, Measured, Usage
from orchestrator.host.workspace.quota import Choice, Quota
from orchestrator.sessions.inspection import Inspector
from orchestrator.state.sandbox import Looks
from tests.support.limits import WAIT_SECONDS
from tests.support.until import until


class Share:
    """The time that a sandbox has to wait, and the time spent."""

    def __init__(self) -> None:
        self.wait = 0.0
        self.spent: list[float] = []

    def spend(self, _member: object, seconds: float) -> float:
        self.spent.append(seconds)
        return self.wait


class Processes:
    """The host's processes: a different number at each look, which may hang."""

    def __init__(self) -> None:
        self.looks = 0
        self.goes_on = threading.Event()

    def measure(self, *_: object) -> tuple[Measured, Earlier]:
        self.looks += 1
        assert self.goes_on.wait(WAIT_SECONDS)
        return Measured([], Usage(0.0, 0.0, 0, self.looks)), Earlier()


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Processes:
    found = Processes()
    monkeypatch.setattr("orchestrator.host.node.local_node.measure", found.measure)
    monkeypatch.setattr("orchestrator.sessions.inspection._MEASURE_SECONDS", 60.0)
    return found


def session_of(link: Share) -> Any:
    spends = SimpleNamespace(spend=lambda seconds: link.spend(None, seconds))
    sandbox = SimpleNamespace(
        name="sandbox", container_id="c", first=None, looks=Looks(), link=spends
    )
    return SimpleNamespace(sandbox=sandbox)


def inspector(share: Share) -> Inspector:
    nobody = cast(Any, None)
    storage = cast(Any, SimpleNamespace(choice=Choice(Quota.NONE, ())))
    node = LocalNode(Path(), nobody, storage)
    return Inspector(node, nobody, nobody, cast(Any, share))


async def count(looks: Inspector, session: Any) -> int | None:
    measured = await looks._measure(session)
    return None if measured is None else measured.usage.pids


async def test_all_who_ask_at_once_share_one_look(processes: Processes) -> None:
    link = Share()
    session = session_of(link)
    looks = inspector(Share())
    asking = [asyncio.create_task(count(looks, session)) for _ in range(20)]
    await until(lambda: processes.looks == 1)
    processes.goes_on.set()
    assert await asyncio.gather(*asking) == [1] * 20
    assert await count(looks, session) == 2
    assert len(link.spent) == 2


async def test_who_leaves_spoils_no_look_of_others(processes: Processes) -> None:
    session, looks = session_of(Share()), inspector(Share())
    leaving, staying = (asyncio.create_task(count(looks, session)) for _ in range(2))
    await until(lambda: processes.looks == 1)
    leaving.cancel()
    processes.goes_on.set()
    assert await staying == 1


async def test_what_takes_long_is_looked_at_less_often(processes: Processes) -> None:
    processes.goes_on.set()
    share = Share()
    session, looks = session_of(Share()), inspector(share)
    assert await count(looks, session) == 1
    share.wait = 0.2
    assert [await count(looks, session) for _ in range(3)] == [1] * 3
    assert await count(looks, session_of(Share())) == 2  # a sandbox without an earlier result
    share.wait = 0.0
    assert await count(looks, session) == 3


async def test_a_look_that_hangs_is_the_only_one_at_its_sandbox(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.sessions.inspection._MEASURE_SECONDS", 0.02)
    session, looks = session_of(Share()), inspector(Share())
    assert [await count(looks, session) for _ in range(10)] == [None] * 10
    assert processes.looks <= 1
    processes.goes_on.set()
    await looks.close()
