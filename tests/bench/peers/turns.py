"""The contenders in turn: each asked once in each round, with its times and its CPU time."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple, TypeVar

from tests.bench.comparison import OURS, Row, figure, rounded
from tests.bench.floors import Floors
from tests.bench.peers.accounting import Accounts
from tests.bench.peers.contender import Contender, ContenderError
from tests.bench.peers.interval import Turns, ratio_interval
from tests.bench.rounds import by_turns

_TURNS_A_FIGURE = 4


class Turn(NamedTuple):
    """What a contender answered in one round, and the CPU seconds meanwhile if they are known."""

    said: Sequence[float]
    cpu: float | None = None


S = TypeVar("S")


class Competing:
    """Contenders with the accounts of their processes.

    One that fails loses the figures, and the reason is kept in `failed`; ours ends the run.
    """

    def __init__(
        self,
        contenders: Sequence[Contender],
        floors: Floors,
        servers: Mapping[str, int],
        order: Random,
        failed: dict[str, str],
    ) -> None:
        """`servers` has the pids of contenders' own servers; `order` shuffles each round."""
        self.contenders = {each.name: each for each in contenders}
        self.accounts = {
            name: Accounts(floors.client, servers.get(name)) for name in self.contenders
        }
        self._order = order
        self._failed = failed

    async def ask(self, name: str, operation: str, **arguments: Any) -> list[Any]:
        """A contender's answer; empty if it failed or has no such operation."""
        try:
            return await self.contenders[name].ask(operation, **arguments) or []
        except ContenderError as error:
            if name.startswith(OURS):
                raise
            self._failed[name] = str(error)
            return []

    async def turn(self, name: str, operation: str, **arguments: Any) -> Turn:
        """One answer, with the CPU time that it took."""
        accounts = self.accounts[name]
        before = accounts.seconds()
        said = await self.ask(name, operation, **arguments)
        after = accounts.seconds()
        return Turn(said, None if before is None or after is None else after - before)

    async def rounds(
        self, count: int, side: Callable[[str], Awaitable[S]], **others: Callable[[], Awaitable[S]]
    ) -> dict[str, list[S]]:
        """What `side` says of every contender in each round, by name; `others` are asked, too.

        Each round has another order.
        """
        sides = {name: partial(side, name) for name in self.contenders} | others
        said = await by_turns(count, [*sides.values()], self._order)
        return dict(zip(sides, said, strict=True))


def cpu_of(turns: Sequence[Turn], operations: Callable[[Turn], float]) -> Turns:
    """CPU seconds per operation, a figure for a few turns; none where that is not known.

    The kernel counts in ticks of 10 ms, so one turn is too short.
    """
    if any(turn.cpu is None for turn in turns):
        return []
    answered = [turn for turn in turns if turn.said]
    figures = []
    for first in range(0, len(answered), _TURNS_A_FIGURE):
        some = answered[first : first + _TURNS_A_FIGURE]
        figures.append([sum(turn.cpu or 0 for turn in some) / sum(map(operations, some))])
    return figures if all(value > 0 for [value] in figures) else []


def row(
    what: str,
    turns: Mapping[str, Turns],
    *,
    unit: str = "ms",
    scale: float = 1000,
    rate: bool = False,
) -> Row:
    """One row of the comparison, with the intervals of Paddock's ratios to the others."""
    present = {
        name: measured
        for name, each in turns.items()
        if (measured := [figures for figures in each if figures])
    }
    figures = {
        name: figure([value for turn in measured for value in turn], scale=scale, rate=rate)
        for name, measured in present.items()
    }
    intervals = {}
    for name in figures:
        if name != OURS and OURS in figures:
            sides = (present[OURS], present[name]) if rate else (present[name], present[OURS])
            # The same draws for the same figures: a stored run and its document do not differ.
            if interval := ratio_interval(*sides, Random(0)):
                intervals[name] = (rounded(interval[0]), rounded(interval[1]))
    return Row(what, unit, figures, rate, intervals)
