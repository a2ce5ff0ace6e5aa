"""What a session may use up in all, and what it has used. Pure: the time comes in from outside."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, Self

from orchestrator.errors import BudgetExceededError


class Kind(StrEnum):
    """What is limited, by the names of the API; the order in which exhaustion is looked for."""

    TIME = "time"
    ITERATIONS = "iterations"
    COMMANDS = "commands"
    CPU_SECONDS = "cpu_seconds"
    OUTPUT_BYTES = "output_bytes"
    AUDIT_BYTES = "audit_bytes"
    TOKENS = "tokens"
    COST = "cost"
    EGRESS_BYTES = "egress_bytes"


# Kinds that people count in seconds or dollars. Inside, every amount is a whole number, of
# millionths here: sums stay exact, and audit events may hold them.
_MILLION = 1_000_000
_MILLIONTHS: Mapping[Kind, str] = {
    Kind.TIME: "microseconds",
    Kind.CPU_SECONDS: "microseconds",
    Kind.COST: "micro-dollars",
}
# What a command finds exhausted; iterations are looked at by the turn that would use one.
OF_COMMANDS = tuple(kind for kind in Kind if kind is not Kind.ITERATIONS)


@dataclass(frozen=True, slots=True)
class Exceeded:
    """What ended a session: amounts in units inside."""

    kind: Kind
    limit: int
    consumed: int

    def error(self) -> BudgetExceededError:
        """What a client is told from then on."""
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


class Amounts(NamedTuple):
    """What may be used, has been, and is left, in seconds, dollars or counts; None: unlimited."""

    limits: Mapping[Kind, int | float | None]
    consumed: Mapping[Kind, int | float]
    remaining: Mapping[Kind, int | float | None]


@dataclass(slots=True)
class Budget:
    """One session's budget. A kind without a limit is unlimited, and counted all the same.

    Amounts are in units inside. Time is not consumed: it passes from `started_at` on,
    whether the session is paused or the control plane is down.
    """

    started_at: datetime
    limits: dict[Kind, int] = field(default_factory=dict)
    exceeded: Exceeded | None = None
    _consumed: dict[Kind, int] = field(default_factory=dict)

    def consumed(self, kind: Kind, now: datetime) -> int:
        """How much of that kind is used."""
        if kind is Kind.TIME:
            return max(0, (now - self.started_at) // timedelta(microseconds=1))
        return self._consumed.get(kind, 0)

    def used(self, kind: Kind) -> int:
        """The same for a kind that is consumed. Raises: ValueError for time."""
        _check(kind, 0)
        return self._consumed.get(kind, 0)

    def remaining(self, kind: Kind, now: datetime) -> int | None:
        """How much is left, at least 0; None: unlimited."""
        limit = self.limits.get(kind)
        return None if limit is None else max(0, limit - self.consumed(kind, now))

    def left(self, kind: Kind) -> int | None:
        """The same for a kind that is consumed. Raises: ValueError for time."""
        limit = self.limits.get(kind)
        return None if limit is None else max(0, limit - self.used(kind))

    def exhausted(self, now: datetime, kinds: Iterable[Kind] = Kind) -> Kind | None:
        """The first of the kinds of which nothing is left.

        To be asked before something is used: with a limit of N, N uses complete and the
        next finds it exhausted.
        """
        return next((kind for kind in kinds if self.remaining(kind, now) == 0), None)

    def consume(self, kind: Kind, amount: int) -> None:
        """Counts use, also beyond the limit. Raises: ValueError for time or a negative amount."""
        _check(kind, amount)
        self._consumed[kind] = self._consumed.get(kind, 0) + amount

    def give_back(self, kind: Kind, amount: int) -> None:
        """Takes back what was counted for something that then did not happen."""
        _check(kind, amount)
        self._consumed[kind] = max(0, self._consumed.get(kind, 0) - amount)

    def reach(self, kind: Kind, total: int) -> None:
        """Takes over a running total; an older, lower one changes nothing."""
        _check(kind, total)
        self._consumed[kind] = max(self._consumed.get(kind, 0), total)

    def exceed(self, kind: Kind, now: datetime) -> Exceeded:
        """Notes that this kind ends the session, where no other has before.

        Raises: KeyError for an unlimited kind.
        """
        exceeded = Exceeded(kind, self.limits[kind], self.consumed(kind, now))
        self.exceeded = self.exceeded or exceeded
        return exceeded

    @property
    def deadline(self) -> datetime | None:
        """When the time is used up; None: never."""
        limit = self.limits.get(Kind.TIME)
        return None if limit is None else self.started_at + timedelta(microseconds=limit)

    def view(self, now: datetime) -> Amounts:
        """The amounts of every kind."""
        return Amounts(
            {kind: _outside_or_none(kind, self.limits.get(kind)) for kind in Kind},
            {kind: outside(kind, self.consumed(kind, now)) for kind in Kind},
            {kind: _outside_or_none(kind, self.remaining(kind, now)) for kind in Kind},
        )

    def stored(self) -> dict[str, Any]:
        """What the store keeps; `started_at` is the session's own.

        What is on record is counted where it is written.
        """
        told = self.exceeded
        consumed = {k: used for k, used in self._consumed.items() if k is not Kind.AUDIT_BYTES}
        return {
            "limits": dict(self.limits),
            "consumed": consumed,
            "exceeded": None if told is None else [told.kind, told.limit, told.consumed],
        }

    @classmethod
    def restored(cls, started_at: datetime, values: Mapping[str, Any]) -> Self:
        """A stored budget; an empty mapping is one without limits."""
        exceeded = values.get("exceeded")
        return cls(
            started_at,
            _by_kind(values.get("limits", {})),
            None if exceeded is None else Exceeded(Kind(exceeded[0]), *exceeded[1:]),
            _by_kind(values.get("consumed", {})),
        )


def limits_of(requested: Mapping[str, int | float]) -> dict[Kind, int]:
    """Limits in units inside, of positive amounts as the API has them."""
    return {Kind(name): inside(Kind(name), amount) for name, amount in requested.items()}


def inside(kind: Kind, amount: int | float) -> int:
    """A positive amount of the API in whole units; too little to be one is one."""
    return max(1, round(amount * _MILLION)) if kind in _MILLIONTHS else int(amount)


def outside(kind: Kind, units: int) -> int | float:
    """Units as the API has them: seconds, dollars, or a count."""
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
        raise ValueError("time passes by itself, it can't be consumed")
    if amount < 0:
        raise ValueError(f"Cannot consume negative {kind}")
