"""Placement: which nodes may have a session, and which of them gets it."""

import random
from dataclasses import replace

from gateway.placed import Placements
from gateway.placement import Against, Since, Wanted, against, choose, score
from orchestrator.cluster.base import Amounts
from orchestrator.cluster.directory import Node
from tests.simulation.__main__ import MOST_OF_OWNER, MOST_REFUSED, MOST_WAIT
from tests.simulation.placement import Scale, simulate
from tests.support.fake_cluster import CAPACITY, node

_LOW = Wanted("low")


def _used(name: str, sandboxes: int, creating: int = 0) -> Node:
    return node(name, used=Amounts(0.0, 0, sandboxes, creating))


def test_which_nodes_may_have_it() -> None:
    able = node("a", images=("base",), labels={"zone": "b"})
    for wanted, other, reason in (
        (_LOW, able, None),
        (Wanted("low", "base", labels={"zone": "b"}), able, None),
        (_LOW, replace(able, alive=False), Against.SILENT),
        (_LOW, node("a", state="draining"), Against.CLOSED),
        (_LOW, node("a", state="gone"), Against.CLOSED),
        (Wanted("high"), able, Against.LEVEL),
        (Wanted("low", "other"), able, Against.IMAGE),
        (Wanted("low", labels={"zone": "c"}), able, Against.LABELS),
        (Wanted("low", labels={"disk": "b"}), able, Against.LABELS),
        (Wanted(), able, None),
    ):
        assert against(other, wanted) is reason, (wanted, other)


def test_the_score() -> None:
    """The fullest of its parts counts; a waiting sandbox and the owner's other ones shift it."""
    empty, since = node("a").report, Since()
    assert score(empty, _LOW, since) == 0
    for used, expected in (
        (Amounts(4.0, 0, 0), 0.5),
        (Amounts(4.0, 12 * 2**30, 0), 0.75),
        (Amounts(0.0, 0, 16), 0.5),
        (Amounts(0.0, 0, 0, 8), 1.0),
    ):
        assert score(replace(empty, used=used), _LOW, since) == expected, used
    waits = replace(empty, waiting={"low": 1})
    assert score(waits, _LOW, since) == -0.2
    assert score(waits, Wanted("low", "base"), since) == 0
    owners = replace(empty, used_by={"ci": 32})
    assert score(owners, Wanted("low", owner="ci"), since) == 0.5
    assert score(owners, Wanted("low", owner="other"), since) == 0
    nothing = replace(empty, capacity=Amounts(0.0, 0, 0), used=Amounts(0.0, 0, 0))
    assert score(nothing, _LOW, since) == 0
    assert score(replace(nothing, used=Amounts(1.0, 1, 1)), _LOW, since) == 1


def test_the_best_of_three_is_chosen_and_refusals_are_not_asked_again() -> None:
    nodes = [_used("full", 30), _used("half", 16), _used("empty", 0)]
    chance = random.Random(1)
    excluded: list[str] = []
    for expected in ("empty", "half", "full"):
        found = choose(nodes, _LOW, lambda name: Since(), excluded, chance)
        assert found is not None
        assert found.name == expected
        excluded.append(found.name)
    assert choose(nodes, _LOW, lambda name: Since(), excluded, chance) is None


def test_few_able_nodes_among_many_are_found() -> None:
    nodes = [node(f"n{number}") for number in range(1000)]
    nodes[700] = node("n700", labels={"gpu": "yes"})
    wanted = Wanted("low", labels={"gpu": "yes"})
    found = choose(nodes, wanted, lambda name: Since(), (), random.Random(1))
    assert found is nodes[700]


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_was_placed_counts_until_a_report_has_it() -> None:
    clock = _Clock()
    placements = Placements(clock, random.Random(1))
    nodes = [_used("one", 0), _used("two", 1)]
    placements.reported(nodes)
    wanted = [replace(_LOW, owner=str(number)) for number in range(4)]
    clock.now = 0.5
    chosen = [placements.choose(each) for each in wanted]
    assert [each and each.name for each in chosen].count("one") == 2
    # The same report, said again a little later, forgets nothing.
    clock.now = 1.0
    placements.reported([replace(each, silent_seconds=1.1) for each in nodes])
    assert chosen[0] is not None
    placements.refused(chosen[0], wanted[0])
    again = placements.choose(_LOW)
    assert again is not None
    assert again.name == chosen[0].name
    # A new one has all of it.
    clock.now = 4.0
    placements.reported([_used("one", 0), _used("two", 2)])
    found = placements.choose(_LOW)
    assert found is not None
    assert found.name == "one"


def test_a_node_that_is_gone_is_not_chosen() -> None:
    placements = Placements(_Clock(), random.Random(1))
    placements.reported([node("one")])
    found = placements.choose(_LOW)
    placements.reported([])
    assert placements.choose(_LOW) is None
    assert found is not None
    placements.refused(found, _LOW)
    assert placements.reasons(_LOW) == {}
    assert CAPACITY.sandboxes == 32


def test_a_small_cluster_by_old_reports() -> None:
    """`python -m tests.simulation` has 1,000 nodes and 100,000 sessions."""
    scale = Scale(nodes=100, sessions=10_000, gateways=4, burst=500)
    found = simulate(scale)
    assert found.refused < MOST_REFUSED
    assert found.wait_p99 < MOST_WAIT
    # Of 100 nodes, each has a tenth of what one of 1,000 may have.
    assert found.owners_most < 10 * MOST_OF_OWNER
