"""The alerts and the dashboard of docs/operations, by a real Prometheus that asks a control plane.

The control plane is whole, and is asked over HTTP with a key of the role `metrics`. The engine and
the sandboxes' agents are made up, so that they fail when they shall. Prometheus has the shipped
files with other times: it asks every 200 ms, `[5m]` and the like are 3 s, and each `for` is 400 ms.
What the shipped times mean, `promtool test rules` checks.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import ClientSession
from pydantic import SecretStr

from orchestrator.ground.errors import PaddockError
from orchestrator.ground.events import EventDraft
from orchestrator.ground.loop_lag import LoopLag, watched_loop
from orchestrator.ground.tasks import TaskName
from orchestrator.host.workspace import mounts
from orchestrator.operate.hooks import hook_deliveries
from orchestrator.operate.hooks.hook_rules import WantedHook
from orchestrator.settings.operator_exports import OperatorExport
from orchestrator.settings.settings import Settings
from tests.support.box import TESTER
from tests.support.prometheus import Alertmanager, Prometheus, alertmanager, program, prometheus
from tests.support.receiver import ERROR, receiving
from tests.support.served_plane import KEY, ServedPlane
from tests.support.until import until

DOCUMENTS = Path(__file__).parents[2] / "docs" / "operations"
RULES = DOCUMENTS / "paddock-alerts.yml"
NAMES = re.findall(r"- alert: (\w+)", RULES.read_text())
_DISK_BYTES = 64 * 1024**2

pytestmark = pytest.mark.skipif(
    program("prometheus") is None or program("promtool") is None,
    reason="no Prometheus here: `make prometheus`",
)


@dataclass
class Watched:
    """A control plane with a Prometheus that asks it, all in one loop."""

    runner: asyncio.Runner
    served: ServedPlane
    manager: Alertmanager
    prometheus: Prometheus
    hook_url: str
    # How far the clock of the loop's lag is ahead.
    ahead: list[float]

    def alert(self, name: str) -> None:
        """Its trouble makes the alert fire, and clears it when it ends. Nothing fires before."""
        self.runner.run(self._alert(name))

    async def _alert(self, name: str) -> None:
        assert name not in self.manager.firing
        async with TROUBLES[name](self):
            await self.manager.fires(name)
        await self.manager.clears(name)


def shortened(text: str) -> str:
    """Files of Prometheus with short times; nothing else is changed."""
    text = re.sub(r"\[\d+[mh]\]", "[3s]", text)
    text = re.sub(r"for: \w+", "for: 400ms", text)
    return re.sub(r"scrape_interval: \w+", "scrape_interval: 200ms", text)


def configured(directory: Path, target: str, key: str, manager: str) -> Path:
    """The shipped files with this host's addresses, and short times."""
    (directory / "paddock.key").write_text(key)
    (directory / RULES.name).write_text(shortened(RULES.read_text()))
    text = shortened((DOCUMENTS / "prometheus.yml").read_text())
    for shipped, here in {
        "127.0.0.1:8700": target,
        "127.0.0.1:9093": manager,
        "/etc/prometheus/paddock.key": str(directory / "paddock.key"),
    }.items():
        assert shipped in text
        text = text.replace(shipped, here)
    path = directory / "prometheus.yml"
    path.write_text(f"global: {{evaluation_interval: 200ms}}\n{text}")
    return path


@contextmanager
def small_disk(directory: Path) -> Iterator[Path]:
    """A state directory on a disk of its own."""
    state = directory / "state"
    state.mkdir(mode=0o700)
    options = f"size={_DISK_BYTES},mode=0700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "paddock", state], check=True)
    try:
        yield state
    finally:
        for point in mounts.mounts_under(str(directory)):
            mounts.unmount(point)


@asynccontextmanager
async def watched(
    runner: asyncio.Runner, lag: LoopLag, ahead: list[float]
) -> AsyncIterator[Watched]:
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pdk-")))
        state = stack.enter_context(small_disk(directory))
        receiver = await stack.enter_async_context(receiving())
        receiver.answer = lambda _: ERROR
        logs = directory / "logs"
        logs.mkdir()
        served = ServedPlane(
            Settings(
                exports={"siem": OperatorExport(file=logs / "record.jsonl")},
                state_dir=state,
                admin_key=SecretStr(KEY),
                min_free_memory_bytes=0,
                min_free_disk_bytes=0,
                workspace_quota="none",
            )
        )
        await served.open(lag)
        stack.push_async_callback(served.close)
        key = await metrics_key(served)
        manager, address = await stack.enter_async_context(alertmanager())
        target = ":".join(map(str, served.listens))
        path = configured(directory, target, key, address)
        server = await stack.enter_async_context(prometheus(path, directory))
        yield Watched(runner, served, manager, server, receiver.url, ahead)


async def metrics_key(served: ServedPlane) -> str:
    """A key as docs/operations/monitoring.md makes one, which can only read metrics."""
    async with ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as client:
        body = {"name": "prometheus", "role": "metrics"}
        async with client.post(f"{served.address}api/keys", json=body) as response:
            assert response.status == 201, await response.text()
            return str((await response.json())["key"])


@pytest.fixture(scope="module")
def instance() -> Iterator[Watched]:
    """One control plane and one Prometheus for all tests of this module."""
    ahead = [0.0]
    lag = LoopLag(lambda: time.perf_counter() + ahead[0])
    with asyncio.Runner(loop_factory=lambda: watched_loop(lag)) as runner:
        context = watched(runner, lag, ahead)
        yield runner.run(context.__aenter__())
        runner.run(context.__aexit__(None, None, None))


@asynccontextmanager
async def a_disk_that_hangs(at: Watched) -> AsyncIterator[None]:
    """The thread that writes the ledger waits, as it does for a disk that answers nothing."""
    over = threading.Event()
    hangs = asyncio.create_task(at.served.plane.database.write(lambda _: over.wait()))
    session = asyncio.create_task(at.served.session(id="waits"))
    try:
        yield
    finally:
        over.set()
        await hangs
        await at.served.plane.sessions.close(TESTER, await session, purge=False)


@asynccontextmanager
async def an_engine_that_fails(at: Watched) -> AsyncIterator[None]:
    """Its calls fail more often than once in ten seconds; the engine is made up."""
    session = await at.served.session(id="pauses")
    for _ in range(3):
        at.served.engine.fail_next("pause")
    with pytest.raises(PaddockError):
        await at.served.plane.sessions.pause(TESTER, session)
    yield
    await at.served.plane.sessions.close(TESTER, session, purge=False)


@asynccontextmanager
async def an_agent_that_is_gone(at: Watched) -> AsyncIterator[None]:
    """Its connection ends and its container runs; the agent is made up."""
    session = await at.served.session(id="unreachable")
    (run_dir, agent) = list(at.served.agents.by_run_dir.items())[-1]
    await agent.close()
    yield
    await agent.dial(Path(run_dir))
    await at.served.plane.sessions.close(TESTER, session, purge=False)


@asynccontextmanager
async def a_full_disk(at: Watched) -> AsyncIterator[None]:
    """A real one of 64 MiB, with a file on it."""
    path = at.served.settings.state_dir / "ballast"
    free = shutil.disk_usage(path.parent).free
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free - _DISK_BYTES // 50)
    yield
    path.unlink()


@asynccontextmanager
async def an_agent_taken_over(at: Watched) -> AsyncIterator[None]:
    """It reports what no agent may; the agent is made up."""
    session = await at.served.session(id="taken-over")
    at.served.agents.latest.emit("made.up")
    yield
    await at.served.plane.sessions.close(TESTER, session, purge=False)


@asynccontextmanager
async def a_task_that_fails(at: Watched) -> AsyncIterator[None]:
    """Four at once, because the second start of one is a second later; they do no work."""

    async def work() -> None:
        raise OSError("made up")

    tasks = [at.served.plane.tasks.start(TaskName.POLICY, work) for _ in range(4)]
    yield
    for task in tasks:
        await task.close()


@asynccontextmanager
async def a_loop_that_is_blocked(at: Watched) -> AsyncIterator[None]:
    """Everything waits for longer than a second. Afterwards, three minutes are said to pass."""
    time.sleep(1.1)  # noqa: ASYNC251 - that is the trouble
    yield
    at.ahead[0] += 180


@asynccontextmanager
async def a_hook_that_refuses(at: Watched) -> AsyncIterator[None]:
    """Its receiver answers 500; one try instead of fifteen in three hours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hook_deliveries, "MOST_TRIES", 1)
        wanted = WantedHook(at.hook_url, ("session.closed",), None, None)
        hook = await at.served.plane.hooks.add(TESTER, wanted)
        session = await at.served.session(id="told-of")
        await at.served.plane.sessions.close(TESTER, session, purge=False)
        yield
        await at.served.plane.hooks.remove(TESTER, hook.id)


@asynccontextmanager
async def an_export_without_its_directory(at: Watched) -> AsyncIterator[None]:
    """The file of the export can't be written; more events than an alert needs are recorded."""
    file = at.served.settings.exports["siem"].file
    assert file is not None
    away = file.parent.rename(file.parent.with_name("away"))
    record = at.served.plane.ledger.append
    await asyncio.gather(
        *(record(EventDraft("policy.reloaded", actor="system")) for _ in range(1100))
    )
    yield
    away.rename(file.parent)


TROUBLES: dict[str, Callable[[Watched], AbstractAsyncContextManager[None]]] = {
    "PaddockAuditBehind": a_disk_that_hangs,
    "PaddockEngineFails": an_engine_that_fails,
    "PaddockSandboxUnreachable": an_agent_that_is_gone,
    "PaddockDiskNearlyFull": a_full_disk,
    "PaddockAgentTakenOver": an_agent_taken_over,
    "PaddockTaskFails": a_task_that_fails,
    "PaddockLoopBlocked": a_loop_that_is_blocked,
    "PaddockHookUndelivered": a_hook_that_refuses,
    "PaddockExportBehind": an_export_without_its_directory,
}


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_fires_and_clears(instance: Watched, name: str) -> None:
    instance.alert(name)


def test_the_shipped_times_are_what_alerts_wait_for() -> None:
    promtool = program("promtool")
    assert promtool is not None
    for command in (
        ["check", "config", "--syntax-only", "prometheus.yml"],
        ["test", "rules", "paddock-alerts-test.yml"],
    ):
        done = subprocess.run([promtool, *command], cwd=DOCUMENTS, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    text = (DOCUMENTS / "paddock-alerts-test.yml").read_text()
    for name in NAMES:
        assert text.count(f"alertname: {name},") >= 2, name  # not yet, and not any more
        assert text.count(f"alertname: {name}\n") == 1, name


# Queries without series as long as nothing of their kind is there: the panel shows nothing.
_QUIET = {
    "paddock_template_ready": "no template is kept ready",
    "paddock_budgets_exceeded_total": "no session has used up a budget",
    "paddock_rate_limited_total": "no key has reached a limit",
}


def test_each_query_of_the_dashboard_has_series(instance: Watched) -> None:
    dashboard = json.loads((DOCUMENTS / "grafana-dashboard.json").read_text())
    instance.runner.run(_activity(instance))
    empty = []
    for target in [each for panel in dashboard["panels"] for each in panel.get("targets", [])]:
        # What Grafana puts in when all instances are chosen.
        expression = target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")
        assert "$" not in expression
        if not instance.runner.run(instance.prometheus.query(expression)):
            empty.append(expression)
    for name, why in _QUIET.items():
        (quiet,) = [each for each in empty if name in each]
        empty.remove(quiet)
        assert "sum by" in quiet, why
    assert empty == []


async def _activity(at: Watched) -> None:
    """What the panels show, once each; returns when Prometheus has seen it begin and end."""
    await _asked_again(at)
    session = await at.served.session(id="busy")
    async with ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as client:
        path = f"{at.served.address}api/sessions/{session.id}/exec"
        for command, status in (("ls", 200), ("curl a.example", 403)):
            async with client.post(path, json={"command": command}) as response:
                assert response.status == status, await response.text()
        at.served.engine.fail_next("create")
        async with client.post(f"{at.served.address}api/sessions", json={}) as response:
            assert response.status == 503
    _, writer = await asyncio.open_connection(*at.served.listens)
    writer.write(b"no HTTP at all\r\n\r\n")
    await writer.drain()
    await _asked_again(at)
    writer.close()
    await at.served.plane.sessions.close(TESTER, session, purge=False)


async def _asked_again(at: Watched) -> None:
    """Returns when Prometheus has two more samples, as a rate needs."""
    seen = _scrapes(at) + 3
    await until(lambda: _scrapes(at) >= seen)


def _scrapes(at: Watched) -> float:
    known = at.served.plane.metrics._known_requests.get(("GET", "/metrics", 200))
    return 0.0 if known is None else float(known._value.get())
