"""Supervised tasks: readiness names each one that fails or hangs."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.check import CheckStatus
from orchestrator.ground.store.database import Database
from orchestrator.ground.tasks import Rounds, TaskName
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.operate.exports.export import Export
from orchestrator.operate.hooks.hook_deliveries import HookDeliveries
from orchestrator.operate.observe.usage import UsageHistory
from orchestrator.operate.operator.reload import Reload
from orchestrator.operate.privacy.owner_requests import OwnerRequests
from orchestrator.operate.telemetry.sending import OtlpSending
from orchestrator.operate.templates.warm_templates import WarmTemplates
from orchestrator.record.audit.anchoring import Anchoring
from orchestrator.record.audit.archiving import Archiving
from orchestrator.record.search_index.search_index import SearchIndex
from orchestrator.sandbox.named_snapshots.named_snapshots import NamedSnapshots
from orchestrator.sandbox.sandboxes.open_network import OpenNetworkUse
from orchestrator.sandbox.sandboxes.warm_pool import WarmPool
from orchestrator.sandbox.sandboxes.workspaces import Workspaces
from orchestrator.sessions.watcher import Watcher
from orchestrator.settings.groups.places import AnchorSettings
from orchestrator.settings.operator_exports import OperatorExport
from orchestrator.settings.operator_hooks import OperatorHook
from orchestrator.settings.settings import Settings
from tests.support.plane import readiness
from tests.support.until import until

# The method that each task calls in every round.
ROUNDS = {
    TaskName.ENGINE_EVENTS: (Watcher, "_handle"),
    TaskName.POLICY: (Reload, "look"),
    TaskName.SCRUBBER: (Database, "scrub"),
    TaskName.SEARCH_INDEX: (SearchIndex, "_feed"),
    TaskName.KEPT_WORKSPACES: (Workspaces, "purge_ended_before"),
    TaskName.SNAPSHOTS: (NamedSnapshots, "remove_taken_before"),
    TaskName.ARCHIVING: (Archiving, "_archive_all"),
    TaskName.ERASING: (OwnerRequests, "_go_on"),
    TaskName.ANCHORING: (Anchoring, "anchor"),
    TaskName.WARM_POOL: (WarmPool, "_round"),
    TaskName.WARM_TEMPLATES: (WarmTemplates, "_round"),
    TaskName.USAGE: (UsageHistory, "sample"),
    TaskName.HOOKS: (HookDeliveries, "_round"),
    TaskName.OPEN_NETWORK: (OpenNetworkUse, "_round"),
    TaskName.EXPORTS: (Export, "_send"),
    TaskName.TELEMETRY: (OtlpSending, "_send"),
}

HOOK = OperatorHook(
    url="http://127.0.0.1:9/", secret=SecretStr("x" * 32), events=("session.closed",)
)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        state_dir=tmp_path / "state",
        admin_key=SecretStr("pdk_admin-key-of-the-tests"),
        min_free_memory_bytes=0,
        min_free_disk_bytes=0,
        workspace_quota="none",
        workspace_retention=3600,
        snapshot_retention=3600,
        audit_retention=3600,
        anchor=AnchorSettings(file=tmp_path / "anchors", interval=3600),
        warm_sandboxes=1,
        hooks={"ci": HOOK},
        exports={"siem": OperatorExport(file=tmp_path / "record.jsonl")},
        otel=True,
        otel_interval=1,
    )


@pytest.fixture
async def opened(settings: Settings) -> AsyncIterator[Callable[[], Any]]:
    planes: list[ControlPlane] = []

    async def opened() -> ControlPlane:
        planes.append(await ControlPlane.open(settings, FakeEngine()))
        return planes[0]

    yield opened
    for plane in planes:
        await plane.close()


async def told(plane: ControlPlane, detail: str) -> None:
    """Waits until readiness shows this detail."""
    await until(lambda: detail in plane.tasks.check().detail)
    plane.ready.fresh_seconds = 0
    check = (await readiness(plane))["tasks"]
    assert check.status is not CheckStatus.OK


def test_none_is_left_out() -> None:
    # A control plane has these in a cluster only; tests/cluster/ has theirs.
    in_cluster = {TaskName.LEASE, TaskName.OUTBOX, TaskName.CLUSTER_KEYS}
    in_cluster |= {TaskName.SHIPPING, TaskName.OLD_ROWS, TaskName.FENCING}
    in_cluster |= {TaskName.COPIES, TaskName.TAKEOVER, TaskName.LENDING, TaskName.SHARED}
    assert {*ROUNDS, TaskName.POLICY_WATCH, *in_cluster} == set(TaskName)


@pytest.mark.parametrize("name", ROUNDS)
async def test_one_that_fails_is_named(
    name: TaskName, opened: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any) -> None:
        raise RuntimeError("nobody has thought of it")

    monkeypatch.setattr(*ROUNDS[name], fail)
    plane = await opened()
    await told(plane, f"failure: {name}")
    monkeypatch.undo()


@pytest.mark.slow
@pytest.mark.parametrize("name", ROUNDS)
async def test_one_that_hangs_is_named(
    name: TaskName, opened: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, goes_on = asyncio.Event(), asyncio.Event()

    async def hang(*_: Any) -> None:
        hangs.set()
        await goes_on.wait()

    monkeypatch.setattr(*ROUNDS[name], hang)
    plane = await opened()
    await hangs.wait()
    detail = f"{name} takes too long, since 2"
    assert detail not in plane.tasks.check().detail
    expire(plane)
    await told(plane, detail)


def expire(plane: ControlPlane) -> None:
    """From now on, every round in progress counts as too long."""
    for task in plane.tasks._started:
        assert task.rounds is not None, task.name
        task.rounds._seconds = -1


async def test_a_thread_that_watches_and_fails_or_hangs_is_named(
    opened: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fails, hangs, goes_on = threading.Event(), threading.Event(), threading.Event()

    def watch(*_: Any) -> None:
        if not fails.is_set():
            fails.set()
            raise RuntimeError("nobody has thought of it")
        hangs.set()
        goes_on.wait()

    monkeypatch.setattr(Reload, "_watch", watch)
    plane = await opened()
    try:
        await told(plane, f"failure: {TaskName.POLICY_WATCH}")
        await until(hangs.is_set)
        for task in plane.tasks._started:
            task._failed = False
        expire(plane)
        await told(plane, f"{TaskName.POLICY_WATCH} takes too long")
    finally:
        goes_on.set()


def test_rounds_that_fail_are_told_since_the_first_until_one_does_not() -> None:
    rounds = Rounds(60)
    assert rounds.trouble is None
    with rounds.round() as first:
        first.failed = True
    with pytest.raises(OSError, match="no"), rounds.round():
        raise OSError("no")
    assert rounds.trouble == ("failed", first.since)
    with pytest.raises(asyncio.CancelledError), rounds.round():
        raise asyncio.CancelledError
    assert rounds.trouble == ("failed", first.since)
    with rounds.round():
        assert rounds.trouble == ("failed", first.since)
    assert rounds.trouble is None
