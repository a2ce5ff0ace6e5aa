"""Whatever turns do, and however often the control plane is restarted, their record is whole."""

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as how
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from orchestrator.control_plane import ControlPlane
from orchestrator.host.engine.base import LABEL_IMAGE, Image
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.host.workspace import mounts
from orchestrator.programs.turns.turn import OperationCall, TurnRecord
from orchestrator.programs.turns.turn_runner import RunningTurn, TurnRunner
from orchestrator.record.audit import query
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.state.requests import NewSession
from orchestrator.state.session import Session
from paddock.contract.words import Kind, Status
from tests.api.conftest import IMAGE, usual_settings
from tests.support.fake_agent import Agents
from tests.support.limits import WAIT_SECONDS
from tests.support.restart import reopened
from tests.support.until import until

pytestmark = pytest.mark.slow

ADMIN = Principal("admin", Role.ADMIN)
ITERATIONS = 6
TOKENS = 100
# Operations of turns, and how these end.
SCRIPTS = {
    "ok": [OperationCall("assert", {"fact": "one"}), OperationCall("facts", {})],
    "runtime-error": [OperationCall("world.read", {"ref": "absent"})],
    "policy-violation": [OperationCall("world.write", {"ref": "a", "text": "b"})],
}

T = TypeVar("T")


class TurnRestarts(RuleBasedStateMachine):
    """One session's turns, over several control planes in succession."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.directory = Path(tempfile.mkdtemp(prefix="pdk-"))
        self.agents = Agents()
        self.engine = FakeEngine(
            images={IMAGE: Image("sha256:1", {LABEL_IMAGE: "sandbox"})},
            on_start=self.agents.start,
            on_stop=self.agents.stop,
        )
        state = self.directory / "state"
        paths = {"state_dir": state, "workspaces_dir": state / "session-workspaces"}
        self.settings = usual_settings().model_copy(update=paths)
        # How the turns ended, in their order; what was reported of tokens.
        self.ends: list[str] = []
        self.tokens = 0
        self.live = True

    def run(self, work: Awaitable[T]) -> T:
        async def wait() -> T:
            async with asyncio.timeout(WAIT_SECONDS):
                return await work

        return self.runner.run(wait())

    @initialize()
    def start(self) -> None:
        self.plane = self.run(ControlPlane.open(self.settings, self.engine))
        request = NewSession(id="box", budget={"iterations": ITERATIONS, "tokens": TOKENS})
        session, *_ = self.run(self.plane.sessions.create(ADMIN, request))
        self.key = session.key

    @property
    def session(self) -> Session:
        found = self.plane.sessions.registry.get("box")
        assert found is not None
        return found

    async def begun(self, script: list[OperationCall]) -> RunningTurn | None:
        """A turn, or None if nothing was left for it, which ends the session."""
        started = await self.plane.turns.start(ADMIN, self.session, tuple(script))
        if isinstance(started, RunningTurn):
            return started
        session = self.session
        await until(lambda: not session.live)
        return None

    def turn(self, script: list[OperationCall], end: str, *, stopped: bool = False) -> None:
        async def whole() -> TurnRecord | None:
            running = await self.begun(script)
            if running is None:
                return None
            if stopped:
                self.plane.turns.interrupt(self.session)
            return await self.plane.turns.wait(running)

        left = ITERATIONS - len(self.ends)
        ended = self.run(whole())
        assert (ended is None) == (left == 0)
        if ended is None:
            self.live = False
            return
        assert ended.outcome is not None
        assert ended.outcome.get("error_type", ended.outcome["tag"]) == end
        self.ends.append(end)

    @precondition(lambda self: self.live)
    @rule(end=st.sampled_from(sorted(SCRIPTS)))
    def run_a_turn(self, end: str) -> None:
        self.turn(SCRIPTS[end], end)

    @precondition(lambda self: self.live)
    @rule()
    def interrupt_a_turn(self) -> None:
        self.turn(SCRIPTS["ok"], "interrupted", stopped=True)

    @precondition(lambda self: self.live)
    @rule(tokens=st.integers(0, 30))
    def report_usage(self, tokens: int) -> None:
        if self.tokens + tokens < TOKENS:
            self.run(self.plane.sessions.report_usage(ADMIN, self.session, tokens, 0))
            self.tokens += tokens

    @rule()
    def restart(self) -> None:
        self.run(self.plane.close())
        self.plane = self.run(reopened(self.settings, self.engine, self.agents))

    @precondition(lambda self: self.live)
    @rule()
    def die_in_a_turn(self) -> None:
        """Its end is not on record when the control plane is started again."""

        async def dying(*_: object) -> None:
            raise asyncio.CancelledError

        async def begin() -> bool:
            running = await self.begun(SCRIPTS["ok"])
            if running is not None:
                await asyncio.wait([running.whole])
            return running is not None

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TurnRunner, "run", dying)
            if self.run(begin()):
                self.ends.append("interrupted")
            else:
                self.live = False
        self.restart()

    @invariant()
    def the_record_is_whole(self) -> None:
        if not hasattr(self, "plane"):
            return
        turns, more = self.run(self.plane.turns.page(self.key, 0, 100))
        assert not more
        assert [turn.number for turn in turns] == list(range(1, len(self.ends) + 1))
        assert [_ended_as(turn) for turn in turns] == self.ends
        for operation in ("turn.start", "turn.end"):
            events = self.run(query.events(self.plane.database, self.key, operation=operation))
            assert [event["turn"] for event in events] == [turn.number for turn in turns]
        assert {event["result"]["kind"] for event in events} <= {"program"}

    @invariant()
    def the_budget_is_what_was_used(self) -> None:
        if not hasattr(self, "plane"):
            return
        budget, now = self.session.budget, datetime.now(UTC)
        assert budget.consumed(Kind.ITERATIONS, now) == len(self.ends)
        assert budget.consumed(Kind.TOKENS, now) == self.tokens
        wanted = Status.ACTIVE if self.live else Status.BUDGET_EXCEEDED
        assert self.session.status is wanted

    def teardown(self) -> None:
        if hasattr(self, "plane"):
            self.run(self.plane.close())
        self.run(self.agents.close())
        self.runner.close()
        for point in reversed(mounts.mounts_under(str(self.directory))):
            mounts.unmount(point)
        shutil.rmtree(self.directory)


def _ended_as(turn: TurnRecord) -> Any:
    assert turn.outcome is not None
    return turn.outcome.get("error_type", turn.outcome["tag"])


def test_turns_survive_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PADDOCK_CONFIG_FILE", "PADDOCK_WORKSPACES_DIR", "SESSION_WORKSPACES_DIR"):
        monkeypatch.delenv(name, raising=False)
    run_state_machine_as_test(
        TurnRestarts,
        settings=how(
            max_examples=how().max_examples // 5,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
