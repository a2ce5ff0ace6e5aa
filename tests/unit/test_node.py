"""The host behind its interface: the local node, and decisions from what a node reports."""

import asyncio
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from orchestrator.ground.check import CheckStatus
from orchestrator.ground.limits import KeyLimits
from orchestrator.ground.loop_lag import LoopLag
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.host.node import local_node
from orchestrator.host.node.base import Node, Resources
from orchestrator.host.node.local_node import LocalNode
from orchestrator.host.node.processes import Earlier, Measured, Usage
from orchestrator.host.workspace.freezing import Freezes
from orchestrator.host.workspace.quota import Choice, Quota
from orchestrator.host.workspace.storage import Storage
from orchestrator.operate.checks.host import resource_checks
from orchestrator.operate.observe.gauges import Gauges
from orchestrator.rules.access.keys import KeyRing
from orchestrator.sandbox.egress.key_bytes import KeyBytes
from orchestrator.sandbox.sandboxes.stopper import Stopper
from orchestrator.sessions.inspection import Inspector
from orchestrator.settings.settings import Settings
from orchestrator.state.counted.tally import Tally
from orchestrator.state.sandbox import Looks, Sandbox
from orchestrator.state.session import Session
from tests.support.fake_node import FakeNode

MEASURED = Measured([], Usage(1.0, 2.0, 3, 4))


@pytest.fixture
def here(tmp_path: Path) -> Node:
    """The host of these tests."""
    settings = Settings(state_dir=tmp_path, workspace_quota="none")
    return LocalNode(tmp_path, FakeEngine(), Storage(settings, Choice(Quota.NONE, ())))


@dataclass(eq=False)
class Held:
    """The parts of a sandbox that a node needs."""

    name: str = "x"
    container_id: str = "c"
    first: None = None
    freezing: asyncio.Task[bool] | None = None
    looks: Looks = field(default_factory=Looks)
    freezes: Freezes = field(default_factory=Freezes)
    link: Any = field(default_factory=lambda: SimpleNamespace(spend=lambda seconds: None))

    def shut_off(self) -> None:
        """It has no way out."""

    reopen = shut_off


def sandbox() -> Sandbox:
    return cast(Sandbox, Held())


async def test_this_host_tells_what_it_has(here: Node) -> None:
    left, load = await here.resources(), here.load()
    assert 0 < left.free_memory_bytes <= load.memory_bytes
    assert 0 < left.free_disk_bytes <= load.disk_bytes
    assert (load.cpus > 0, load.cpu_seconds["user"] > 0) == (True, True)
    assert (await here.measure("no-such-container", None, Earlier())).found is None
    assert await here.kill("no-such-container", None) == 0


async def test_a_disk_that_hangs_keeps_a_few_threads(
    here: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_node, "_RESOURCE_SECONDS", 0.05)
    hung, release = list[Path](), threading.Event()

    def hang(directory: Path) -> Resources:
        hung.append(directory)
        release.wait()
        return Resources(0, 0)

    monkeypatch.setattr(local_node, "resources", hang)
    asked = await asyncio.gather(*(here.resources() for _ in range(40)), return_exceptions=True)
    assert all(isinstance(error, TimeoutError) for error in asked)
    assert len(hung) == 4
    release.set()


async def test_what_can_not_be_frozen_is_killed_by_the_node() -> None:
    engine = FakeEngine()
    node = FakeNode(engine)
    for _ in range(3):
        engine.fail_next("pause")
    assert not await Stopper(node).freeze(sandbox())
    assert node.killed == [("c", True), ("c", False)]
    node.hangs = True  # the hang is logged, and no end waits for it
    engine.fail_next("pause")
    assert not await Stopper(node).freeze(sandbox())


async def test_an_inspection_shows_what_the_node_sees_in_time() -> None:
    node = FakeNode()
    inspector = Inspector(node, cast(Any, None), cast(Any, None))
    session = cast(Session, SimpleNamespace(sandbox=sandbox()))
    assert await inspector._measure(session) is None
    node.shown["c"] = MEASURED
    assert await inspector._measure(session) == MEASURED
    node.hangs = True
    assert await inspector._measure(session) is None


def test_what_is_left_is_held_against_the_minimums(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path, min_free_memory_bytes=100, min_free_disk_bytes=100)
    memory, disk = resource_checks(settings, Resources(1000, 99))
    assert (memory.status, disk.status) == (CheckStatus.OK, CheckStatus.FAILURE)


def test_metrics_of_the_host_are_the_node_s() -> None:
    registry = CollectorRegistry()
    nothing = SimpleNamespace(tally=Tally(), sandboxed=[])
    slots = SimpleNamespace(waiting=0, working=0)
    sessions = SimpleNamespace(registry=nothing, shares=SimpleNamespace(slots=slots))
    lag = SimpleNamespace(pending=0, oldest_seconds=0.0)
    ledger = SimpleNamespace(lag=lambda: lag, committed=0)
    index = cast(Any, SimpleNamespace(lag=3))
    pool = cast(Any, SimpleNamespace(shapes=[]))
    key_bytes = KeyBytes(KeyRing({}), KeyLimits())
    key_bytes.add("ci", 5)
    registry.register(
        Gauges(
            cast(Any, sessions),
            [],
            cast(Any, ledger),
            index,
            FakeNode(),
            pool,
            key_bytes,
            LoopLag(),
            cast(Any, SimpleNamespace(waiting=7)),
        )
    )
    text = generate_latest(registry).decode()
    assert "paddock_host_cpus 2.0" in text
    assert "paddock_audit_index_lag_events 3.0" in text
    assert "paddock_egress_bytes_total 5.0" in text
    assert "paddock_outbox_messages 7.0" in text
    assert 'paddock_host_cpu_seconds_total{mode="user"} 1.5' in text
    assert "paddock_host_disk_total_bytes 8.589934592e+09" in text
