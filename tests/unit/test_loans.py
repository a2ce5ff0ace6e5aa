"""Bytes that a cluster lends to its nodes: never more than the limit, whatever is lost."""

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from orchestrator.cluster.lending import AGAIN_SECONDS, IDLE_SECONDS, Borrowing
from orchestrator.cluster.loan import PORTIONS, Lent, Loan, granted, portion_of
from orchestrator.ground.errors import ClusterUnavailableError
from orchestrator.ground.tasks import Tasks

NODES = st.sampled_from(["a", "b", "c"])
LIMIT = 1_000


class MemoryTable:
    """The rows of a cluster, and what happens to messages on the way."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self.rows: dict[str, Lent] = {}
        self.portions: list[int] = []

    def settle(self, node: str, limit: int, used: int, wanted: int) -> int:
        """As the database does."""
        mine = self.rows.get(node, Lent())
        others = sum(each.counted for name, each in self.rows.items() if name != node)
        found = granted(limit, others, Lent(mine.granted, used), wanted)
        self.portions.append(found - max(mine.granted, used))
        self.rows[node] = Lent(found, used)
        return found


class Cluster(RuleBasedStateMachine):
    """Nodes that borrow, use, lose answers, are killed, and give back, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.table = MemoryTable()
        self.loans: dict[str, Loan] = {}
        # What was really used, by processes that are gone, too.
        self.used = 0

    def loan(self, node: str) -> Loan:
        """That of the node's present process."""
        if node not in self.loans:
            loan = self.loans[node] = Loan("")
            loan.begin(self.table.rows.get(node, Lent()).granted, counted=False)
        return self.loans[node]

    @rule(node=NODES, lost=st.booleans())
    def borrow(self, node: str, lost: bool) -> None:
        loan = self.loan(node)
        found = self.table.settle(node, self.table.limit, loan.used, loan.asks_for(LIMIT))
        if not lost:
            loan.granted = found

    @rule(node=NODES, size=st.integers(1, 200))
    def use(self, node: str, size: int) -> None:
        loan = self.loan(node)
        taken = min(size, loan.left)
        loan.used += taken
        self.used += taken

    @rule(node=NODES, lost=st.booleans())
    def give_back(self, node: str, lost: bool) -> None:
        loan = self.loan(node)
        kept = loan.give_back()
        if not lost:
            assert self.table.settle(node, self.table.limit, loan.used, kept) == kept

    @rule(node=NODES)
    def kill(self, node: str) -> None:
        self.loans.pop(node, None)

    @rule(limit=st.sampled_from([LIMIT // 2, LIMIT]))
    def change_the_limit(self, limit: int) -> None:
        self.table.limit = limit

    @invariant()
    def the_sum_is_within_the_limit(self) -> None:
        lent = sum(each.counted for each in self.table.rows.values())
        assert self.used <= lent <= LIMIT
        for node, loan in self.loans.items():
            assert loan.granted <= max(self.table.rows.get(node, Lent()).counted, loan.used)

    @invariant()
    def no_portion_is_larger_than_agreed(self) -> None:
        assert max(self.table.portions, default=0) <= LIMIT // PORTIONS


def test_the_sum_used_in_the_cluster_never_exceeds_the_limit() -> None:
    run_state_machine_as_test(Cluster, settings=settings(deadline=None, stateful_step_count=40))


def test_what_was_recorded_above_the_loan_counts() -> None:
    # What stops is recorded without asking: 700 of 1,000 are left for the others.
    assert granted(LIMIT, 0, Lent(100, 300), 400) == 300 + portion_of(LIMIT)
    assert granted(LIMIT, Lent(100, 990).counted, Lent(), 62) == 10
    assert granted(LIMIT, 2_000, Lent(50, 60), 100) == 50
    assert granted(LIMIT, 0, Lent(100, 60), 10) == 60
    assert portion_of(0) == portion_of(15) == 1


class Lending:
    """A lender of one node, which may be away."""

    def __init__(self, node: str, table: MemoryTable) -> None:
        self.node, self.table = node, table
        self.away = False
        self.asked = 0

    async def granted(self, owner: str, kind: str) -> int:
        self._answer()
        return self.table.rows.get(self._row(owner), Lent()).granted

    async def settle(self, owner: str, kind: str, limit: int, used: int, wanted: int) -> int:
        self._answer()
        return self.table.settle(self._row(owner), limit, used, wanted)

    def _row(self, owner: str) -> str:
        return self.node if owner == "ci" else f"{self.node} of {owner}"

    def _answer(self) -> None:
        self.asked += 1
        if self.away:
            raise ClusterUnavailableError("the database does not answer")


class Clock:
    """Seconds that a test lets pass."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def borrowing(
    lender: Lending,
    clock: Callable[[], float],
    told: Callable[[str], None] = lambda owner: None,
    limit: Callable[[str], int | None] = lambda owner: LIMIT,
    kind: Callable[[], str] = lambda: "bytes",
) -> Borrowing:
    return Borrowing(lender, kind, limit, told, clock=clock)


async def test_more_is_asked_for_ahead_of_need_and_nobody_waits_for_it() -> None:
    table = MemoryTable()
    lender = Lending("a", table)
    loans = borrowing(lender, Clock())
    loans.start(Tasks())
    await loans.ready("ci", 1)
    first = loans.left("ci")
    assert first == LIMIT // PORTIONS
    used = 0
    while used < LIMIT:
        left = loans.left("ci")
        assert left, f"a request would have waited after {used} bytes"
        size = min(left, 10)
        loans.use("ci", size)
        used += size
        # Whatever else runs: the portion arrives in between.
        await loans.ready("ci", min(20, LIMIT - used))
    assert loans.left("ci") == 0
    assert table.rows["a"].granted == LIMIT
    await loans.close()


async def test_without_the_database_what_is_held_is_used_and_then_nothing() -> None:
    lender, told, clock = Lending("a", MemoryTable()), list[str](), Clock()
    loans = borrowing(lender, clock, told.append)
    loans.start(Tasks())
    await loans.ready("ci", 1)
    lender.away = True
    held = loans.left("ci")
    assert held
    loans.use("ci", held)
    await loans.ready("ci", 1)
    assert (loans.left("ci"), loans.loan("ci").away, told) == (0, True, ["ci"])
    # It does not wait again at once, and is there again when the database is.
    await loans.ready("ci", 1)
    lender.away = False
    clock.now += AGAIN_SECONDS
    await loans.ready("ci", 1)
    assert loans.left("ci")
    await loans.close()


async def test_what_others_return_is_lent_again() -> None:
    table, clock = MemoryTable(limit=16), Clock()
    here, there = Lending("a", table), Lending("b", table)
    first = borrowing(here, clock, limit=lambda owner: 16)
    second = borrowing(there, clock, limit=lambda owner: 16)
    for each in (first, second):
        each.start(Tasks())
    await first.ready("ci", 16)
    assert first.left("ci") == 16
    await second.ready("ci", 1)
    assert (second.left("ci"), second.loan("ci").spent) == (0, True)
    first.use("ci", 6)
    await first.close()
    assert table.rows["a"] == Lent(6, 6)
    clock.now += AGAIN_SECONDS
    await second.ready("ci", 10)
    assert second.left("ci") == 10
    await second.close()


async def test_a_loan_that_is_idle_is_returned() -> None:
    table, clock = MemoryTable(), Clock()
    loans = borrowing(Lending("a", table), clock)
    loans.start(Tasks())
    await loans.ready("ci", 1)
    loans.use("ci", 5)
    clock.now += IDLE_SECONDS
    # The next need of another key wakes it, and the one after that comes after the return.
    for need in (1, LIMIT // PORTIONS + 1):
        await loans.ready("other", need)
    assert table.rows["a"] == Lent(5, 5)
    await loans.close()


async def test_the_window_s_end_ends_the_loan() -> None:
    day, table = ["1"], MemoryTable()
    loans = borrowing(Lending("a", table), Clock(), kind=lambda: f"bytes {day[0]}")
    loans.start(Tasks())
    await loans.ready("ci", 1)
    loans.use("ci", 60)
    day[0] = "2"
    table.rows.clear()
    await loans.ready("ci", 1)
    assert loans.left("ci") == LIMIT // PORTIONS
    await loans.close()


@pytest.mark.parametrize("limit", [None, 0])
async def test_keys_without_a_limit_ask_for_nothing(limit: int | None) -> None:
    lender = Lending("a", MemoryTable())
    loans = borrowing(lender, Clock(), limit=lambda owner: limit)
    loans.start(Tasks())
    await loans.ready("ci", 10)
    assert loans.left("ci") == limit
    if limit is None:
        assert lender.asked == 0
    await loans.close()
