"""What this gateway has put on nodes, until their reports have it."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from gateway.placement import Against, Since, Wanted, added, against, choose
from orchestrator.cluster.directory import Node


@dataclass(slots=True)
class _OnNode:
    """`at` is when a session was put there, by the clock of `Placements`."""

    reported_at: float = float("-inf")
    sessions: list[tuple[float, Wanted]] = field(default_factory=list)
    sums: Since = field(default_factory=Since)


class Placements:
    """Chooses nodes, and remembers what it chose for as long as reports do not show it."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        chance: random.Random | None = None,
    ) -> None:
        """`clock` is in seconds."""
        self._clock = clock
        self._chance = chance or random.Random()  # noqa: S311 - nothing secret depends on it
        self._nodes: Sequence[Node] = ()
        self._on: dict[str, _OnNode] = {}

    def reported(self, nodes: Sequence[Node]) -> None:
        """Takes the nodes' newest reports; forgets what was put there before they were made."""
        now = self._clock()
        self._nodes = nodes
        self._on = {node.name: self._on.get(node.name) or _OnNode() for node in nodes}
        for node in nodes:
            on, made_at = self._on[node.name], now - node.silent_seconds
            # The age of the same report wavers with the time that the question takes.
            if made_at > on.reported_at + _WAVERING_SECONDS:
                on.reported_at = made_at
                _recount(on, node, [each for each in on.sessions if each[0] > made_at])

    def choose(self, wanted: Wanted, excluded: Iterable[str] = ()) -> Node | None:
        """The node to be asked next, which then counts as having the session; None: none is left.

        `excluded` have refused it.
        """
        refused = frozenset(excluded)
        node = choose(self._nodes, wanted, self._since, refused, self._chance)
        if node is not None:
            on = self._on[node.name]
            on.sessions.append((self._clock(), wanted))
            added(on.sums, node.report, wanted)
        return node

    def _since(self, name: str) -> Since:
        return self._on[name].sums

    def refused(self, node: Node, wanted: Wanted) -> None:
        """The node has not got the session after all."""
        on = self._on.get(node.name)
        if on is None:
            return
        for index in reversed(range(len(on.sessions))):
            if on.sessions[index][1] is wanted:
                del on.sessions[index]
                _recount(on, node, on.sessions)
                return

    def reasons(self, wanted: Wanted) -> Counter[Against]:
        """Why how many nodes can't have it."""
        found = (against(node, wanted) for node in self._nodes)
        return Counter(reason for reason in found if reason is not None)


# Less than the time between two renewals, 3 s.
_WAVERING_SECONDS = 1.0


def _recount(on: _OnNode, node: Node, sessions: list[tuple[float, Wanted]]) -> None:
    on.sessions, on.sums = sessions, Since()
    for _, wanted in sessions:
        added(on.sums, node.report, wanted)
