"""Refusals are recorded or counted, and what is kept of them is little."""

import tracemalloc
from types import SimpleNamespace
from typing import Any, cast

from orchestrator.audit.ledger import Ledger
from orchestrator.metrics import Metrics
from orchestrator.sessions.recorder import Recorder
from orchestrator.sessions.session import Session
from orchestrator.sessions.session_secrets import SessionSecrets, Stored


class Forgetful(Recorder):
    """Keeps nothing of what it records."""

    async def _record_refusal(self, session: Session, members: dict[str, Any]) -> None:
        """It is on record."""


async def test_what_is_kept_of_long_refusals_is_bounded() -> None:
    recorder = Forgetful(cast(Ledger, None), cast(Metrics, None))
    secrets = SessionSecrets(Stored(), {})
    session = cast(Session, SimpleNamespace(key="k", id="s", secrets=secrets))
    tracemalloc.start()
    for number in range(200):
        argv = [*(["x" * 1000] * 200), str(number)]
        await recorder.refuse(
            session,
            "command.start",
            actor="a",
            rule="r",
            args={"argv": argv},
            error=f"{number}" * 5000,
        )
    del argv
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 4_000_000
    await recorder.close()
