"""Long chains are verified in a process: it holds nobody up, and ends with whoever wanted it."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from orchestrator.ground.errors import RateLimitedError, ValidationError
from orchestrator.ground.round_robin import asking
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.database_file import StoreError
from orchestrator.record.audit import verification, verifier, verifying_process
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.audit.verifier import MOST_OF_KEY, Verifier
from paddock.audit.chain import Verdict
from tests.support.until import until
from tests.unit.ledger_support import draft

# Longer than what one request to the process follows.
_LONG = verification.PAGE * verifying_process.PAGES + 50


async def _fill(ledger: Ledger, key: str, count: int = _LONG) -> str:
    """A chain of so many events; returns its head's hash."""
    events = await asyncio.gather(*(ledger.append(draft(key)) for _ in range(count)))
    return events[-1].hash


@pytest.fixture
async def checks(database: Database, tmp_path: Path) -> AsyncIterator[Verifier]:
    checks = Verifier(database, tmp_path / "paddock.db")
    yield checks
    await checks.close()
    assert checks._process._running is None


def _asked(checks: Verifier, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the process is asked from now on."""
    told: list[Any] = []
    ask = checks._process.ask

    async def noting(request: Any) -> dict[str, Any]:
        told.append(request)
        return await ask(request)

    monkeypatch.setattr(checks._process, "ask", noting)
    return told


async def test_the_verdict_is_the_same(
    database: Database, ledger: Ledger, checks: Verifier
) -> None:
    head = await _fill(ledger, "k1")
    same = partial(verification.verify, database, "k1")
    good = await checks.verify("k1")
    assert (good, good) == (await same(), Verdict(True, None, None, _LONG, head))
    for seq, noted in ((_LONG, head), (_LONG, "0" * 64), (3, head), (_LONG + 1, head)):
        assert await checks.verify("k1", seq, noted) == await same(seq, noted)
    with pytest.raises(ValidationError):
        await checks.verify("k1", seq=1)
    assert await checks.verify("unknown") == await verification.verify(database, "unknown")

    def spoil(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE events SET time = 'x' WHERE seq = ?", (_LONG - 7,))

    await database.write(spoil)
    bad = await checks.verify("k1")
    assert (bad.ok, bad.index) == (False, _LONG - 8)
    assert bad == await same()


async def test_the_readers_do_the_same_for_any_long_chain(
    database: Database, ledger: Ledger, checks: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _fill(ledger, "short", verification.PAGE)
    await _fill(ledger, "long", verification.PAGE + 1)
    await _fill(ledger, "longest")
    asked = _asked(checks, monkeypatch)
    looks = 0
    browse = database.browse

    async def counting(function: Any) -> Any:
        nonlocal looks
        looks += 1
        return await browse(function)

    monkeypatch.setattr(database, "browse", counting)
    await checks.verify("short")
    assert (asked, checks._process._running) == ([], None)
    looks = 0
    for key in ("long", "longest"):
        assert (await checks.verify(key)).ok
    assert looks == 2  # the heads of both
    assert [request["session_key"] for request in asked if "end" in request] == [
        *("long", "longest", "longest")
    ]


async def test_keys_take_turns(
    ledger: Ledger, checks: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "PAGE", 10)
    for key in ("a1", "a2", "a3", "b1"):
        await _fill(ledger, key, 2 * _LONG)
    asked = _asked(checks, monkeypatch)

    async def verify(owner: str, key: str) -> Verdict:
        with asking(owner, owner):
            return await checks.verify(key)

    other = [asyncio.create_task(verify("a", f"a{number}")) for number in (1, 2, 3)]
    assert (await verify("b", "b1")).ok
    turns = [request["session_key"][:1] for request in asked if "session_key" in request]
    mine = [number for number, key in enumerate(turns) if key == "b"]
    assert len(mine) == 3
    # Between two steps of its own, a key waits for two of another, however many those have.
    assert max(b - a for a, b in pairwise(mine)) <= 3
    assert all(verdict.ok for verdict in await asyncio.gather(*other))


async def test_a_key_has_so_many_at_a_time(ledger: Ledger, checks: Verifier) -> None:
    await _fill(ledger, "k1")
    with asking("a", "a"):
        running = [asyncio.create_task(checks.verify("k1")) for _ in range(MOST_OF_KEY)]
        await asyncio.sleep(0)
        with pytest.raises(RateLimitedError) as refused:
            await checks.verify("k1")
    assert refused.value.fields["limit"] == "verifications"
    with asking("b", "b"):
        assert (await checks.verify("k1")).ok
    assert all(verdict.ok for verdict in await asyncio.gather(*running))
    with asking("a", "a"):
        assert (await checks.verify("k1")).ok


async def test_it_ends_when_its_client_leaves(
    ledger: Ledger, checks: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _fill(ledger, "k1", 6 * _LONG)
    asked = _asked(checks, monkeypatch)
    leaving = asyncio.create_task(checks.verify("k1"))
    await until(lambda: checks._process._running is not None)
    process = checks._process._running
    assert process is not None
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await process.wait()
    await until(lambda: checks._process._running is None)
    assert len(asked) <= 2
    assert not checks._of_key


async def test_others_go_on_when_one_client_leaves(ledger: Ledger, checks: Verifier) -> None:
    await _fill(ledger, "k1", 5 * _LONG)
    leaving = asyncio.create_task(checks.verify("k1"))
    staying = asyncio.create_task(checks.verify("k1"))
    await until(lambda: checks._process.users == 2)
    leaving.cancel()
    assert (await staying).ok


async def test_a_process_that_is_killed_is_replaced(ledger: Ledger, checks: Verifier) -> None:
    await _fill(ledger, "k1", 6 * _LONG)
    failing = asyncio.create_task(checks.verify("k1"))
    await until(lambda: checks._process._running is not None)
    running = checks._process._running
    assert running is not None
    running.send_signal(signal.SIGKILL)
    with pytest.raises(StoreError):
        await failing
    assert (await checks.verify("k1")).ok


async def test_a_process_that_hangs_is_killed(
    ledger: Ledger, checks: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _fill(ledger, "k1", 6 * _LONG)
    monkeypatch.setattr(verifier, "_STEP_SECONDS", 1.0)
    failing = asyncio.create_task(checks.verify("k1"))
    await until(lambda: checks._process._running is not None)
    running = checks._process._running
    assert running is not None
    running.send_signal(signal.SIGSTOP)
    with pytest.raises(StoreError, match="within 1 s"):
        await failing
    assert running.returncode == -signal.SIGKILL


async def test_it_ends_with_the_control_plane(ledger: Ledger, checks: Verifier) -> None:
    await _fill(ledger, "k1", 6 * _LONG)
    running = asyncio.create_task(checks.verify("k1"))
    await until(lambda: checks._process._running is not None)
    process = checks._process._running
    assert process is not None
    await checks.close()
    assert process.returncode is not None
    with pytest.raises(StoreError):
        await running
    with pytest.raises(StoreError):
        await checks.verify("k1")


def test_it_does_not_begin_for_a_process_that_has_died(tmp_path: Path) -> None:
    root = Path(verifying_process.__file__).parents[3]
    ended = subprocess.run(
        [sys.executable, "-I", "-S", "-c", verifier._START, root, tmp_path, str(os.getpid() + 1)],
        input=b"not even read",
        check=False,
    )
    assert ended.returncode == 1
