"""Whatever happens to sessions of a node, its cluster has what the node has, and nothing else."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as how
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from orchestrator import control_plane
from orchestrator.ground.errors import ClusterUnavailableError
from orchestrator.ground.limits import KeyUsage
from orchestrator.sessions.in_cluster.session_place import amounts_of
from orchestrator.sessions.in_cluster.workspace_sizes import all_sizes
from orchestrator.state.requests import NewSession
from orchestrator.state.session import Session
from paddock.contract.words import Rationale, Status
from tests.api.test_restarts import ADMIN, IDS, LEVELS, Restarts, _forget_settings
from tests.support.cluster_in_memory import Cluster

pytestmark = pytest.mark.slow


class NodeRestarts(Restarts):
    """The control planes are those of one node, whose cluster outlives them."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(control_plane, "open_cluster", self.cluster.opener("one"))
        # The settings of a node are checked elsewhere.
        self.settings = self.settings.model_copy(update={"cluster": "blue", "node": "one"})

    @rule(name=st.sampled_from(IDS), level=st.sampled_from(LEVELS))
    def work_while_it_is_away(self, name: str, level: str) -> None:
        """What stops is done and told later; what begins is refused, and nothing is left of it."""
        self.cluster.away = True
        sessions = self.plane.sessions
        known = self.live(name)
        if known is None:
            with pytest.raises(ClusterUnavailableError):
                self.run(sessions.create(ADMIN, NewSession(id=name, permission_level=level)))
        elif known.status is Status.PAUSED:
            self.close(name, purge=True)
        else:
            self.pause_or_resume(name)
        self.cluster.away = False

    @rule(name=st.sampled_from(IDS))
    def lose_an_answer(self, name: str) -> None:
        """The claim is taken, but the node does not hear of it."""
        if self.live(name):
            return
        self.cluster.loses_answers = True
        with pytest.raises(ClusterUnavailableError):
            self.run(self.plane.sessions.create(ADMIN, NewSession(id=name)))
        self.cluster.loses_answers = False

    @rule(name=st.sampled_from(IDS))
    def fail_to_start(self, name: str) -> None:
        """The session is on record, but there is no sandbox for it."""
        if self.live(name):
            return
        self.engine.fail_next("create")
        with pytest.raises(Exception, match="create"):
            self.run(self.plane.sessions.create(ADMIN, NewSession(id=name)))

    @invariant()
    def the_cluster_has_what_the_node_has(self) -> None:
        if not hasattr(self, "plane"):
            return
        outbox = self.plane.outbox
        self.run(outbox.delivered())
        assert outbox.waiting == 0
        cluster, live = self.cluster, self.plane.sessions.registry.live
        assert cluster.places.keys() == {session.key for session in live}
        sizes = self.run(self.plane.database.read(all_sizes))
        assert {name: size for name, (_, _, size) in cluster.workspaces.items()} == sizes
        for session in live:
            placed = cluster.places[session.key]
            summary = placed.summary
            assert (summary.status, summary.level) == (session.status, session.level.name)
            amounts = amounts_of(session, session.limits)
            without_size = KeyUsage(1, amounts.cpus, amounts.memory_bytes, 1)
            assert replace(placed.amounts, workspace_bytes=0) == without_size
            assert (session.cluster, session.place) == ("blue", placed.number)

    @invariant()
    def each_place_is_given_back_once(self) -> None:
        given_back = Counter(self.cluster.given_back)
        assert max(given_back.values(), default=1) == 1
        assert {*self.cluster.claimed} == {*given_back} | {*self.cluster.places}

    def teardown(self) -> None:
        super().teardown()
        self.patch.undo()


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeRestarts]:
    _forget_settings(monkeypatch)
    state = NodeRestarts()
    state.start()
    yield state
    state.teardown()


def check(node: NodeRestarts) -> None:
    node.the_cluster_has_what_the_node_has()
    node.each_place_is_given_back_once()


@pytest.mark.parametrize("writes", range(5))
@pytest.mark.parametrize("what", ["create", "close", "level"])
def test_a_kill_at_any_write_leaves_no_place_behind(
    node: NodeRestarts, what: str, writes: int
) -> None:
    if what != "create":
        node.create(name="a", level="low")
    else:
        node.create(name="b", level="low")
    node.die_while(name="a", what=what, level="high", writes=writes)
    check(node)


def test_a_claim_whose_answer_is_lost_is_given_back(node: NodeRestarts) -> None:
    node.lose_an_answer(name="a")
    check(node)
    node.create(name="a", level="low")
    check(node)


def test_what_stops_does_not_wait_for_the_cluster(node: NodeRestarts) -> None:
    node.create(name="a", level="low")
    node.cluster.away = True
    node.close(name="a", purge=True)
    assert node.cluster.places
    assert node.plane.outbox.waiting > 0
    node.restart(kills=set())
    node.cluster.away = False
    check(node)
    assert node.cluster.places == {}
    assert node.cluster.workspaces == {}


def test_a_raise_waits_for_the_cluster(node: NodeRestarts) -> None:
    node.create(name="a", level="low")
    node.cluster.away = True
    session = node.session("a")
    with pytest.raises(ClusterUnavailableError):
        node.run(node.plane.sessions.changes.set_level(ADMIN, session, "high", {}))
    assert session.level.name == "low"
    session.check_open()
    node.cluster.away = False
    node.change_level(name="a", level="high", fails=False)
    check(node)


def test_a_session_whose_place_is_another_nodes_ends_as_moved(node: NodeRestarts) -> None:
    node.create(name="a", level="low")
    node.create(name="b", level="low")
    placed = node.cluster.places[node.session("a").key]
    placed.node, placed.number = "two", 2
    node.restart(kills=set())
    found: Session = node.session("a")
    assert found.status is Status.ABORTED
    assert found.termination is not None
    assert found.termination.rationale_code is Rationale.MOVED
    assert node.session("b").live
    node.run(node.plane.outbox.delivered())
    # The other node's place is not this node's to release.
    assert node.cluster.places[found.key] is placed


def test_a_kept_workspace_counts_with_its_new_size(node: NodeRestarts) -> None:
    node.create(name="a", level="high")
    node.close(name="a", purge=False)
    node.fail_to_start(name="a")
    check(node)
    node.create(name="a", level="high")
    node.close(name="a", purge=False)
    node.create(name="a", level="low")
    check(node)


def test_a_session_from_before_the_cluster_gets_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    _forget_settings(monkeypatch)
    node = NodeRestarts()
    alone, in_cluster = {"cluster": None, "node": None}, node.settings
    node.settings = in_cluster.model_copy(update=alone)
    node.patch.undo()
    node.start()
    node.create(name="a", level="low")
    assert node.cluster.places == {}
    node.patch.setattr(control_plane, "open_cluster", node.cluster.opener("one"))
    node.settings = in_cluster
    for _ in range(2):
        node.restart(kills=set())
        assert node.cluster.places.keys() == {node.session("a").key}
    check(node)
    node.teardown()


def test_the_cluster_has_what_the_node_has(monkeypatch: pytest.MonkeyPatch) -> None:
    _forget_settings(monkeypatch)
    run_state_machine_as_test(
        NodeRestarts,
        settings=how(
            max_examples=how().max_examples * 2 // 5,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
