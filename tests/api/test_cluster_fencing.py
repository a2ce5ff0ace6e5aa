"""Sessions that others may take over stand still while their node has no lease."""

import itertools
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as how
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from orchestrator.cluster import fence
from orchestrator.cluster.fence import FENCE_SECONDS
from orchestrator.ground.errors import ClusterUnavailableError, PaddockError
from orchestrator.host.engine.base import ContainerState
from orchestrator.state.requests import NewSession
from orchestrator.state.session import Session
from orchestrator.state.terms import Terms
from paddock.contract.words import Rationale, Status
from sandbox_agent.decide.protocol import Message
from tests.api.test_cluster_restarts import NodeRestarts
from tests.api.test_restarts import ADMIN, _forget_settings
from tests.support.fake_agent import FakeAgent
from tests.support.until import until

LONG_AGO = 13.0


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeRestarts]:
    _forget_settings(monkeypatch)
    state = NodeRestarts()
    state.start()
    yield state
    state.teardown()


def create(node: NodeRestarts, name: str = "a", recovery: str | None = "snapshot") -> Session:
    request = NewSession(id=name, permission_level="low", terms=Terms(recovery=recovery))
    return node.run(node.plane.sessions.create(ADMIN, request)).session


def frozen(node: NodeRestarts, session: Session) -> bool:
    assert session.sandbox is not None
    state = node.engine.containers[session.sandbox.container_id].state
    return state is ContainerState.PAUSED


def wait_until(node: NodeRestarts, session: Session, *, stands_still: bool) -> None:
    node.run(
        until(lambda: session.fenced is stands_still and frozen(node, session) is stands_still)
    )


def lose_lease(node: NodeRestarts, session: Session) -> None:
    node.cluster.away = True
    node.cluster.renew(LONG_AGO)
    wait_until(node, session, stands_still=True)


def get_lease(node: NodeRestarts) -> None:
    node.cluster.away = False
    node.cluster.renew()


def operations(node: NodeRestarts, session: Session) -> list[str]:
    def read(connection: object) -> list[str]:
        rows = connection.execute(  # type: ignore[attr-defined]
            "SELECT operation FROM events WHERE session_key = ? ORDER BY seq", (session.key,)
        )
        return [name for (name,) in rows]

    return node.run(node.plane.database.read(read))


async def use(node: NodeRestarts, session: Session) -> None:
    async with node.plane.sessions.suspensions.using(ADMIN, session):
        session.check_open()


def test_it_stands_still_and_refuses_work_until_the_lease_is_back(node: NodeRestarts) -> None:
    session, other = create(node), create(node, "b", None)
    lose_lease(node, session)
    for refused in (
        use(node, session),
        node.plane.sessions.changes.set_level(ADMIN, session, "medium", {}),
    ):
        with pytest.raises(ClusterUnavailableError, match="stands still"):
            node.run(refused)
    assert not frozen(node, other)
    node.run(use(node, other))
    get_lease(node)
    wait_until(node, session, stands_still=False)
    node.run(use(node, session))
    assert operations(node, session)[-2:] == ["session.fenced", "session.unfenced"]


def test_what_wakes_up_refuses_work_before_anything_is_frozen(node: NodeRestarts) -> None:
    """As a process that was stopped: a request comes first, and the end of the lease was unseen."""
    session, other = create(node), create(node, "b", None)

    async def woken() -> None:
        node.cluster.silent_seconds = LONG_AGO
        other.check_open()
        assert not session.fenced
        with pytest.raises(ClusterUnavailableError, match="stands still"):
            session.check_open()

    node.run(woken())
    get_lease(node)
    node.run(until(lambda: not session.fenced))
    node.run(use(node, session))


def test_a_fence_that_closed_unseen_is_closed_until_the_places_are_compared(
    node: NodeRestarts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The renewal after the wake-up is heard of first; the place is another node's by then."""
    session = create(node)
    node.cluster.renew(5.0)
    turns = itertools.count()
    node.run(until(lambda: next(turns) > 10))  # it is seen
    monkeypatch.setattr(fence, "FENCE_SECONDS", 4.0)
    placed = node.cluster.places[session.key]
    placed.node, placed.number = "two", placed.number + 1

    async def woken() -> None:
        node.cluster.renew()
        with pytest.raises(ClusterUnavailableError, match="stands still"):
            session.check_open()

    node.run(woken())
    node.run(until(lambda: not session.live))
    assert session.termination is not None
    assert session.termination.rationale_code is Rationale.MOVED


def test_an_end_does_not_wait_for_the_lease_and_nothing_is_thawed_for_it(
    node: NodeRestarts,
) -> None:
    session = create(node)
    lose_lease(node, session)
    resumed = node.engine.calls.count("resume")
    node.run(node.plane.sessions.abort(ADMIN, session))
    assert session.status is Status.ABORTED
    assert node.engine.calls.count("resume") == resumed
    assert not node.engine.containers


def test_a_session_that_another_node_has_ends_as_moved_and_never_runs_again(
    node: NodeRestarts,
) -> None:
    session = create(node)
    lose_lease(node, session)
    resumed = node.engine.calls.count("resume")
    placed = node.cluster.places[session.key]
    placed.node, placed.number = "two", placed.number + 1
    get_lease(node)
    node.run(until(lambda: not session.live))
    node.run(_settled(session))
    assert session.termination is not None
    assert session.termination.rationale_code is Rationale.MOVED
    assert node.engine.calls.count("resume") == resumed
    # The place is the other node's, and stays so.
    node.run(node.plane.outbox.delivered())
    assert node.cluster.places[session.key].node == "two"


async def _settled(session: Session) -> None:
    async with session.lock:
        pass


def test_it_stands_still_over_restarts_and_is_not_taken_for_a_paused_one(
    node: NodeRestarts,
) -> None:
    create(node)
    lose_lease(node, node.session("a"))
    node.restart(kills=set())
    session = node.session("a")
    wait_until(node, session, stands_still=True)
    assert session.status is Status.ACTIVE
    get_lease(node)
    wait_until(node, session, stands_still=False)
    node.run(use(node, session))
    assert not {"session.pause", "session.resume"} & {*operations(node, session)}


def test_it_stands_still_while_no_control_plane_runs(node: NodeRestarts) -> None:
    session = create(node)
    container = session.sandbox.container_id if session.sandbox else ""
    node.run(node.plane.close())
    assert node.engine.containers[container].state is ContainerState.PAUSED
    node.plane = node.run(node.reopened())
    wait_until(node, node.session("a"), stands_still=False)


def test_a_paused_session_stays_paused(node: NodeRestarts) -> None:
    session = create(node)
    node.run(node.plane.sessions.pause(ADMIN, session))
    lose_lease(node, session)
    with pytest.raises(PaddockError):
        node.run(node.plane.sessions.resume(ADMIN, session))
    get_lease(node)
    node.run(until(lambda: not session.fenced))
    assert frozen(node, session)
    node.run(node.plane.sessions.resume(ADMIN, session))
    node.run(use(node, session))


def test_a_suspended_session_gets_no_sandbox(node: NodeRestarts) -> None:
    session = create(node)
    node.run(node.plane.sessions.suspensions.suspend(session, "room"))
    node.cluster.away = True
    node.cluster.renew(LONG_AGO)
    node.run(until(lambda: session.fenced))
    with pytest.raises(ClusterUnavailableError):
        node.run(use(node, session))
    get_lease(node)
    node.run(until(lambda: not session.fenced))
    node.run(use(node, session))


def test_a_lease_that_is_back_does_not_thaw_before_the_places_are_compared(
    node: NodeRestarts,
) -> None:
    session = create(node)
    lose_lease(node, session)
    node.cluster.renew()  # but the database does not say where sessions are
    with pytest.raises(ClusterUnavailableError):
        node.run(use(node, session))
    assert frozen(node, session)
    get_lease(node)
    wait_until(node, session, stands_still=False)


class Lives(RuleBasedStateMachine):
    """One session of a node whose lease comes and goes, and whose place others may take."""

    def __init__(self) -> None:
        super().__init__()
        self.node = NodeRestarts()
        self.node.start()
        self.lost = False

    @property
    def session(self) -> Session | None:
        found = self.node.plane.sessions.registry.get("a")
        return found if found is not None and found.live else None

    @rule()
    def create_or_use(self) -> None:
        if self.session is None:
            if not self.lost:
                create(self.node)
        elif self.lost:
            with pytest.raises(ClusterUnavailableError):
                self.node.run(use(self.node, self.session))
        elif self.session.status is Status.ACTIVE:
            self.node.run(use(self.node, self.session))

    @rule()
    def suspend(self) -> None:
        if self.session is not None:
            self.node.run(self.node.plane.sessions.suspensions.suspend(self.session, "room"))

    @rule()
    def pause_or_resume(self) -> None:
        sessions, session = self.node.plane.sessions, self.session
        if session is None:
            return
        if session.status is Status.ACTIVE:
            self.node.run(sessions.pause(ADMIN, session))
        elif not self.lost:
            self.node.run(sessions.resume(ADMIN, session))
        else:
            with pytest.raises(ClusterUnavailableError):
                self.node.run(sessions.resume(ADMIN, session))

    @rule()
    def lose(self) -> None:
        self.lost = True
        self.node.cluster.renew(LONG_AGO)
        self.settle()

    @rule(taken=st.booleans())
    def regain(self, taken: bool) -> None:
        """Only while it has no lease may another node have taken the place."""
        session, cluster = self.session, self.node.cluster
        if taken and self.lost and session is not None:
            placed = cluster.places[session.key]
            placed.node, placed.number = "two", placed.number + 1
            resumed = self.node.engine.calls.count("resume")
        else:
            taken = False
        self.lost = False
        cluster.renew()
        if taken and session is not None:
            self.node.run(until(lambda: not session.live))
            self.node.run(_settled(session))
            assert self.node.engine.calls.count("resume") == resumed
            assert session.termination is not None
            assert session.termination.rationale_code is Rationale.MOVED
            del cluster.places[session.key]  # the other node ends it
        self.settle()

    @rule()
    def restart(self) -> None:
        self.node.restart(kills=set())
        self.settle()

    @rule()
    def end(self) -> None:
        if self.session is not None:
            self.node.run(self.node.plane.sessions.abort(ADMIN, self.session))

    def settle(self) -> None:
        session = self.session
        if session is not None:
            self.node.run(until(lambda: session.fenced is self.lost))
            self.node.run(_settled(session))

    @invariant()
    def it_runs_only_with_a_lease(self) -> None:
        session = self.session
        if session is None:
            assert not self.node.engine.containers
        elif session.sandbox is not None:
            assert frozen(self.node, session) is (self.lost or session.status is Status.PAUSED)

    def teardown(self) -> None:
        self.node.teardown()


def test_it_runs_only_while_its_node_has_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    _forget_settings(monkeypatch)
    run_state_machine_as_test(
        Lives,
        settings=how(
            max_examples=how().max_examples // 4,
            stateful_step_count=12,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def words(node: NodeRestarts) -> list[int | None]:
    """Until when agents were told that they may run, in milliseconds; None: asked for the clock."""
    return [
        params.get("until_ms")
        for agent in node.agents.by_run_dir.values()
        for method, params in agent.requests
        if method == "vouch"
    ]


def test_its_agent_is_told_until_when_it_may_run(node: NodeRestarts) -> None:
    """At its start, after each renewal and when it is resumed, and not while it stands still."""
    create(node, "other", None)
    assert words(node) == []
    session = create(node)
    told = len(words(node))
    assert told == 2
    node.cluster.renew()
    node.run(until(lambda: len(words(node)) >= told + 2))
    clock = time.clock_gettime(time.CLOCK_BOOTTIME) * 1000
    last = [word for word in words(node) if word is not None][-1]
    assert clock < last <= clock + FENCE_SECONDS * 1000
    node.run(node.plane.sessions.pause(ADMIN, session))
    told = len(words(node))
    node.run(node.plane.sessions.resume(ADMIN, session))
    assert len(words(node)) >= told + 2
    lose_lease(node, session)
    told = len(words(node))
    node.cluster.renew(LONG_AGO)
    node.run(until(lambda: session.fenced))
    assert len(words(node)) == told
    get_lease(node)
    wait_until(node, session, stands_still=False)
    node.run(until(lambda: len(words(node)) >= told + 2))


@pytest.mark.parametrize("now", [None, True, -1, "1", 2**60])
def test_an_agent_that_says_no_time_is_not_trusted(
    node: NodeRestarts, now: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def says(_agent: FakeAgent, _params: Message) -> Message:
        return {"now_ms": now}

    monkeypatch.setattr(FakeAgent, "_on_vouch", says)
    with pytest.raises(PaddockError, match="malformed"):
        create(node)
    assert not node.engine.containers
