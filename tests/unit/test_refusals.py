"""Refusals are recorded or counted, and what is kept of them is little."""

import tracemalloc
from types import SimpleNamespace
from typing import Any, cast

from orchestrator.sessions.refusals import Refusals
from orchestrator.sessions.session import Session
from orchestrator.sessions.session_secrets import SessionSecrets, Stored


async def test_what_is_kept_of_long_refusals_is_bounded() -> None:
    async def record(session: Session, members: dict[str, Any]) -> None:
        """Keeps nothing."""

    refusals = Refusals(record)
    secrets = SessionSecrets(Stored(), {})
    session = cast(Session, SimpleNamespace(key="k", id="s", secrets=secrets))
    tracemalloc.start()
    for number in range(200):
        argv = [*(["x" * 1000] * 200), str(number)]
        await refusals.record(session, {"args": {"argv": argv}})
    del argv
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 4_000_000
    await refusals.close()
