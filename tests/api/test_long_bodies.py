"""While one client sends the worst that it may, others are served: stops and deadlines first."""

import asyncio
import io
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import pytest

from orchestrator.ground.check import CheckStatus
from orchestrator.operate.checks.loop import check_loop
from orchestrator.settings.instance_url import announce
from orchestrator.settings.settings import Settings
from paddock.contract.requests import LARGEST_BODY
from tests.api.conftest import OPERATOR_KEY, Api
from tests.support.until import until

# CPU time in which the event loop does nothing else.
_SLICE = 0.05


def repeated() -> bytes:
    """Many members, of which the last one has the name of another."""
    names = [f'"n{number:06}":1' for number in range(120_000)]
    return f"{{{','.join(names)},{names[-1]}}}".encode()


def worst_bodies() -> Iterator[bytes]:
    entries = [
        {"path": f"a/{number}", "content_hash": "sha256:" + "0" * 64} for number in range(9999)
    ]
    yield repeated()
    yield json.dumps({"argv": ["curl", *["--x"] * 32_000]}).encode()
    yield json.dumps({"argv": [1] * 120_000}).encode()
    yield json.dumps({"consume": {"entries": [*entries, {"path": 1}]}}).encode()
    yield b'{"x":[0' + b",[]" * (LARGEST_BODY // 3 - 8) + b"]}"
    yield json.dumps({"stdin": "\n" * 2_000_000}).encode()


@pytest.fixture
def measured(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has steps of requests measured in CPU time of the event loop's thread."""
    monkeypatch.setattr(api.plane.lag, "_clock", time.thread_time)


async def send(api: Api, body: bytes) -> int:
    """Sends it where the operator may; returns the status."""
    path = "/api/sessions" if b"consume" in body[:16] else "/api/sessions/its-own/exec"
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {OPERATOR_KEY}"}
    async with api.client.request("POST", path, data=io.BytesIO(body), headers=headers) as answer:
        return answer.status


@asynccontextmanager
async def sent_again_and_again(api: Api) -> AsyncIterator[None]:
    """Has the operator send the worst bodies, all at once, for as long as the context lasts."""
    bodies = list(worst_bodies())
    rounds: list[set[int]] = []

    async def keep_sending() -> None:
        while True:
            rounds.append(set(await asyncio.gather(*(send(api, body) for body in bodies))))

    sending = asyncio.create_task(keep_sending())
    try:
        yield
        await until(lambda: bool(rounds) or sending.done())
        assert not sending.done(), sending.exception()
        assert set().union(*rounds) <= {400, 403, 413, 429}
    finally:
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending


@pytest.mark.usefixtures("measured")
async def test_a_session_is_aborted_meanwhile(api: Api) -> None:
    await api.session(id="its-own", key=OPERATOR_KEY)
    await api.session(id="box")
    async with sent_again_and_again(api):
        aborted = await api.json("POST", "/api/sessions/box/abort")
    assert aborted["status"] == "aborted"
    assert api.plane.lag.longest_step < _SLICE, api.plane.lag.operation


@pytest.mark.usefixtures("measured")
async def test_a_deadline_is_met_meanwhile(api: Api) -> None:
    await api.session(id="its-own", key=OPERATOR_KEY)
    await api.session(id="box", wall_timeout=1)
    session = api.plane.sessions.registry.all[-1]
    async with sent_again_and_again(api):
        await until(lambda: not session.live)
    shown = await api.json("GET", "/api/sessions/box")
    assert shown["status"] == "aborted"
    assert api.plane.lag.longest_step < _SLICE, api.plane.lag.operation


async def test_the_longest_wait_is_told(api: Api, settings: Settings) -> None:
    lag = api.plane.lag
    lag.longest_step, lag.operation = 2.0, "POST /api/long"
    lag.passed(time.perf_counter(), 2.5)
    api.plane.ready.fresh_seconds = 0
    checks = (await api.json("GET", "/readyz"))["checks"]
    assert "2500 ms: POST /api/long" in checks["event loop"]["detail"]
    metrics = await (await api.call("GET", "/metrics")).text()
    assert "paddock_loop_lag_seconds 2.5" in metrics
    # The doctor is another process, which asks.
    assert not check_loop(settings).detail.startswith("in the last hour")
    announce(settings.state_dir, str(api.server.make_url("")))
    told = await asyncio.to_thread(check_loop, settings)
    assert told.status is CheckStatus.WARNING
    assert "2500 ms: POST /api/long" in told.detail
