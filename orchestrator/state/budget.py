"""What a session may consume in total, and what it has consumed. Pure: the time is an argument."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Self

from orchestrator.ground.errors import BudgetExceededError
from paddock.contract.words import Kind

# Kinds that the API counts in seconds or dollars. Internally, every amount is a whole number, here
# of millionths, so that sums stay exact and audit events may contain them.
_MILLION = 1_000_000
_MILLIONTHS: Mapping[Kind, str] = {
    Kind.TIME: "microseconds",
    Kind.CPU_SECONDS: "microseconds",
    Kind.COST: "micro-dollars",
}
# The kinds checked for a command; iterations are checked by the turn that would use one.
OF_COMMANDS = tuple(kind for kind in Kind if kind is not Kind.ITERATIONS)


@dataclass(frozen=True, slots=True)
class Exceeded:
    """The limit that ended a session, with amounts in internal units."""

    kind: Kind
    limit: int
    consumed: int

    def error(self) -> BudgetExceededError:
        """The error for clients from then on."""
        limit, consumed = outside(self.kind, self.limit), outside(self.kind, self.consumed)
        return BudgetExceededError(
            f"Budget exceeded: {self.kind} ({consumed}/{limit})",
            kind=str(self.kind),
            limit=limit,
            consumed=consumed,
        )

    def recorded(self) -> dict[str, Any]:
        """The members of the audit event; `unit` says what the whole numbers count."""
        unit = _MILLIONTHS.get(self.kind, "count")
        return {
            "kind": str(self.kind),
            "limit": self.limit,
            "consumed": self.consumed,
            "unit": unit,
        }


class BudgetView(NamedTuple):
    """Limits, consumption and the rest, in seconds, dollars or counts; None: unlimited."""

    limits: Mapping[Kind, int | float | None]
    consumed: Mapping[Kind, int | float]
    remaining: Mapping[Kind, int | float | None]


@dataclass(slots=True)
class Budget:
    """One session's budget. A kind without a limit is unlimited but still counted.

    Amounts are in internal units. Time is not consumed: it passes from `started_at` on, even while
    the session is paused or the control plane is down.

    `children` are the budgets of live sessions that it has spawned: their limits are reserved in
    this one. `spent` is what ended ones have used. Both count as consumed here.
    """

    started_at: datetime
    limits: dict[Kind, int] = field(default_factory=dict)
    exceeded: Exceeded | None = None
    _consumed: dict[Kind, int] = field(default_factory=dict)
    children: list["Budget"] = field(default_factory=list, repr=False)
    spent: dict[Kind, int] = field(default_factory=dict)

    def consumed(self, kind: Kind, now: datetime) -> int:
        """The consumed amount of that kind, by the session and by its children."""
        if kind is Kind.TIME:
            return max(0, (now - self.started_at) // timedelta(microseconds=1))
        return self.used(kind)

    def used(self, kind: Kind) -> int:
        """The consumed amount of a kind that is not time. Raises: ValueError for time."""
        return self.own(kind) + self.by_children(kind)

    def own(self, kind: Kind) -> int:
        """What the session itself has consumed. Raises: ValueError for time."""
        _check(kind, 0)
        return self._consumed.get(kind, 0)

    def by_children(self, kind: Kind) -> int:
        """What its children have consumed, including those that have ended."""
        return self.spent.get(kind, 0) + sum(child.used(kind) for child in self.children)

    def reserved(self, kind: Kind) -> int:
        """What its children and theirs may still use in its account; time is not reserved."""
        if kind is Kind.TIME:
            return 0
        limited = (child for child in self.children if kind in child.limits)
        return sum(max(0, child.limits[kind] - child.used(kind)) for child in limited)

    def own_limit(self, kind: Kind) -> int | None:
        """What the session itself may consume in all, without its children; None: unlimited."""
        limit = self.limits.get(kind)
        if limit is None:
            return None
        return max(0, limit - self.by_children(kind) - self.reserved(kind))

    def settle(self, child: "Budget") -> None:
        """Ends the reservation of a child that has ended: what it has not used is free again."""
        others = [each for each in self.children if each is not child]
        if len(others) == len(self.children):
            return
        self.children = others
        for kind in Kind:
            if kind is not Kind.TIME and child.used(kind):
                self.spent[kind] = self.spent.get(kind, 0) + child.used(kind)

    def remaining(self, kind: Kind, now: datetime) -> int | None:
        """The remaining amount that is not reserved, at least 0; None: unlimited."""
        limit = self.limits.get(kind)
        if limit is None:
            return None
        return max(0, limit - self.consumed(kind, now) - self.reserved(kind))

    def left(self, kind: Kind) -> int | None:
        """The remaining amount of a kind that is not time. Raises: ValueError for time."""
        limit = self.limits.get(kind)
        return None if limit is None else max(0, limit - self.used(kind) - self.reserved(kind))

    def exhausted(self, now: datetime, kinds: Iterable[Kind] = Kind) -> Kind | None:
        """The first of the kinds that is used up.

        Call it before something is used: with a limit of N, N uses complete, and the next one finds
        it exhausted.
        """
        return next((kind for kind in kinds if self.remaining(kind, now) == 0), None)

    def consume(self, kind: Kind, amount: int) -> None:
        """Counts consumption, even beyond the limit.

        Raises: ValueError for time or a negative amount.
        """
        _check(kind, amount)
        self._consumed[kind] = self._consumed.get(kind, 0) + amount

    def give_back(self, kind: Kind, amount: int) -> None:
        """Takes back what was counted for something that did not happen."""
        _check(kind, amount)
        self._consumed[kind] = max(0, self._consumed.get(kind, 0) - amount)

    def reach(self, kind: Kind, total: int) -> None:
        """Updates a running total; an older, lower total changes nothing."""
        _check(kind, total)
        self._consumed[kind] = max(self._consumed.get(kind, 0), total)

    def exceed(self, kind: Kind, now: datetime) -> Exceeded:
        """Notes that this kind ends the session, unless another kind has before.

        Raises: KeyError for an unlimited kind.
        """
        consumed = self.consumed(kind, now) + self.reserved(kind)
        exceeded = Exceeded(kind, self.limits[kind], consumed)
        self.exceeded = self.exceeded or exceeded
        return exceeded

    @property
    def deadline(self) -> datetime | None:
        """The time when the time limit is reached; None: never."""
        limit = self.limits.get(Kind.TIME)
        return None if limit is None else self.started_at + timedelta(microseconds=limit)

    def view(self, now: datetime) -> BudgetView:
        """The amounts of every kind."""
        return BudgetView(
            {kind: _outside_or_none(kind, self.limits.get(kind)) for kind in Kind},
            {kind: outside(kind, self.consumed(kind, now)) for kind in Kind},
            {kind: _outside_or_none(kind, self.remaining(kind, now)) for kind in Kind},
        )

    def stored(self) -> dict[str, Any]:
        """The stored form; `started_at` is stored with the session.

        Recorded bytes are counted where they are written.
        """
        exceeded = self.exceeded
        consumed = {k: used for k, used in self._consumed.items() if k is not Kind.AUDIT_BYTES}
        return {
            "limits": dict(self.limits),
            "consumed": consumed,
            "exceeded": exceeded and [exceeded.kind, exceeded.limit, exceeded.consumed],
        }

    @classmethod
    def restored(cls, started_at: datetime, values: Mapping[str, Any]) -> Self:
        """Restores a stored budget; an empty mapping is a budget without limits."""
        exceeded = values.get("exceeded")
        return cls(
            started_at,
            _by_kind(values.get("limits", {})),
            None if exceeded is None else Exceeded(Kind(exceeded[0]), *exceeded[1:]),
            _by_kind(values.get("consumed", {})),
        )


def limits_of(requested: Mapping[str, int | float]) -> dict[Kind, int]:
    """Converts the API's positive limits to internal units."""
    return {Kind(name): inside(Kind(name), amount) for name, amount in requested.items()}


def inside(kind: Kind, amount: int | float) -> int:
    """Converts a positive API amount to whole units, at least one."""
    return max(1, round(amount * _MILLION)) if kind in _MILLIONTHS else int(amount)


def outside(kind: Kind, units: int) -> int | float:
    """Converts internal units to the API's: seconds, dollars, or a count."""
    if kind not in _MILLIONTHS:
        return units
    whole, rest = divmod(units, _MILLION)
    return units / _MILLION if rest else whole


def _outside_or_none(kind: Kind, units: int | None) -> int | float | None:
    return None if units is None else outside(kind, units)


def _by_kind(values: Mapping[str, int]) -> dict[Kind, int]:
    return {Kind(name): amount for name, amount in values.items()}


def _check(kind: Kind, amount: int) -> None:
    if kind is Kind.TIME:
        raise ValueError("time passes by itself and can't be consumed")
    if amount < 0:
        raise ValueError(f"Cannot consume negative {kind}")
