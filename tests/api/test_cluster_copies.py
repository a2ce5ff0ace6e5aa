"""What a node copies to its cluster: chains of sessions whose node may be lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.ground.errors import ClusterUnavailableError
from orchestrator.record.audit.recorded_event import full_event
from orchestrator.rules.policy import levels
from orchestrator.state.requests import NewSession
from orchestrator.state.session import Session
from orchestrator.state.terms import Terms
from paddock.audit.chain import Chain
from paddock.contract.words import Rationale, Status
from tests.api.test_cluster_restarts import NodeRestarts
from tests.api.test_restarts import ADMIN, _forget_settings
from tests.support.until import until

LEVEL_FILES = Path(levels.__file__).with_name("levels")
RECOVERED = Terms(recovery="snapshot")


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeRestarts]:
    _forget_settings(monkeypatch)
    state = NodeRestarts()
    durable = (LEVEL_FILES / "medium.toml").read_text().replace("rank = 200", "rank = 220")
    (state.directory / "levels/durable.toml").write_text(f'durability = "cluster"\n{durable}')
    state.start()
    yield state
    state.teardown()


def create(node: NodeRestarts, level: str = "durable", terms: Terms | None = None) -> Session:
    request = NewSession(id="a", permission_level=level, terms=terms or Terms())
    return node.run(node.plane.sessions.create(ADMIN, request)).session


def end(node: NodeRestarts, session: Session) -> None:
    ends = node.plane.sessions.ends
    node.run(ends.run(session, ADMIN, Status.COMPLETED, Rationale.NORMAL))


def operations(node: NodeRestarts, session: Session) -> list[str]:
    """Those of the session's copied events, which are a verified chain."""
    chain = Chain()
    found = []
    for event in node.cluster.chains.get(session.key, []):
        full = full_event(event.body, event.prev_hash, event.hash)
        chain.follow(full)
        found.append(full["operation"])
    assert chain.verdict().ok
    return found


def test_start_and_end_of_a_durable_level_are_copied_before_the_answer(
    node: NodeRestarts,
) -> None:
    session = create(node)
    assert operations(node, session) == ["session.create"]
    end(node, session)
    assert operations(node, session) == ["session.create", "session.terminated"]


def test_a_start_whose_copy_is_refused_is_refused_and_nothing_is_left(node: NodeRestarts) -> None:
    node.cluster.copies_away = True
    with pytest.raises(ClusterUnavailableError):
        create(node)
    node.cluster.copies_away = False
    assert node.plane.sessions.registry.live == []
    node.run(node.plane.outbox.delivered())
    assert node.cluster.places == {}
    assert not node.engine.containers


def test_an_end_does_not_wait_for_the_cluster_and_is_copied_later(node: NodeRestarts) -> None:
    session = create(node)
    node.cluster.copies_away = True
    end(node, session)
    assert not session.live
    assert operations(node, session) == ["session.create"]
    # Whatever happens to the process.
    node.restart(kills=set())
    node.cluster.copies_away = False
    _wait_for(node, session, "session.terminated")


def test_a_session_that_recovers_is_copied_from_its_first_event_on(node: NodeRestarts) -> None:
    session = create(node, "low", RECOVERED)
    _wait_for(node, session, "session.create")
    end(node, session)
    _wait_for(node, session, "session.terminated")


def test_others_are_not_copied_until_they_have_such_a_level(node: NodeRestarts) -> None:
    session = create(node, "low")
    end_of_copies = node.cluster.chains.get(session.key)
    assert end_of_copies is None
    node.run(node.plane.sessions.changes.set_level(ADMIN, session, "durable", {}))
    _wait_for(node, session, "session.settings")
    assert operations(node, session)[0] == "session.create"


def _wait_for(node: NodeRestarts, session: Session, last: str) -> None:
    async def copied() -> None:
        await until(lambda: _asked(node, session, last))

    node.run(copied())


def _asked(node: NodeRestarts, session: Session, last: str) -> bool:
    return last in operations(node, session)
