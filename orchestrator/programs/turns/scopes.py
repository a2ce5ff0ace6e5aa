"""Nested scopes of a turn: narrower budgets and policies for a part of a program. Pure."""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace

from orchestrator.programs.turns.outcome import Symbol, Value
from orchestrator.programs.turns.programs import Enter, OperationFailed
from orchestrator.rules.policy.session_policy import SessionPolicy
from sandbox_agent.decide.globs import GlobError, Globs

# What a nested budget may limit: tokens of models, micro-dollars, microseconds, operations.
_MILLIONTHS = ("cost", "time")
KINDS = ("tokens", "cost", "time", "iterations")
_MOST_SCOPES = 100
_LISTS = ("allow", "deny", "read", "write")

Used = Callable[[], Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class NestedScope:
    """A part of the program that is running: its policy, and the totals at which it must stop.

    `program` is the number of the event that records the nested program around it. `facts` is the
    number of facts at its beginning, because those of a nested program end with it; None: it is a
    part of the same program.
    """

    policy: SessionPolicy
    ends_at: Mapping[str, int]
    program: int | None = None
    facts: int | None = None


class Scopes:
    """The open scopes, the outermost first; `used` returns what the turn has used so far."""

    def __init__(self, policy: SessionPolicy, used: Used) -> None:
        self._used = used
        self._open = [NestedScope(policy, {})]

    @property
    def policy(self) -> SessionPolicy:
        """The policy of the innermost scope."""
        return self._open[-1].policy

    @property
    def program(self) -> int | None:
        """The number of the innermost nested program's event; None: the turn's own program runs."""
        return self._open[-1].program

    @property
    def nested(self) -> bool:
        """Whether a part of the program is running that has a budget or a policy of its own."""
        return len(self._open) > 1

    def enter(self, request: Enter, program: int | None = None, facts: int | None = None) -> None:
        """Opens a scope, of a nested program with that event's number, or in the same program.

        `facts` are those that were there before a nested program.

        Raises: OperationFailed for malformed options.
        """
        if len(self._open) > _MOST_SCOPES:
            raise OperationFailed(f"{request.kind}: more than {_MOST_SCOPES} scopes are open")
        if request.kind == "with-budget":
            budget, lists = request.args, {}
        else:
            options = _named(request.kind, request.args, ("budget", *_LISTS))
            budget = options.pop("budget", ())
            lists = {name: _texts(request.kind, name, items) for name, items in options.items()}
        limits = {
            name: _amount(request.kind, name, items)
            for name, items in _named(request.kind, budget, KINDS).items()
        }
        used = self._used()
        ends_at = {name: used[name] + amount for name, amount in limits.items()}
        policy = _narrowed(request.kind, self.policy, lists)
        self._open.append(
            NestedScope(policy, ends_at, self.program if program is None else program, facts)
        )

    def leave(self) -> int | None:
        """Closes the innermost scope; returns how many facts remain, None: all."""
        return self._open.pop().facts

    def unwind(self, scope: int) -> int | None:
        """Closes that nested scope, counted from 1, and those inside it; returns as `leave`."""
        closed = self._open[scope:]
        del self._open[scope:]
        return next((each.facts for each in closed if each.facts is not None), None)

    def exceeded(self, kinds: Container[str] = KINDS) -> tuple[int, str] | None:
        """The outermost nested scope whose budget is used up, and the kind; None: there is none."""
        if len(self._open) == 1:
            return None
        used = self._used()
        for number, scope in enumerate(self._open[1:], 1):
            for kind, end in scope.ends_at.items():
                if kind in kinds and used[kind] >= end:
                    return number, kind
        return None

    def left(self, kind: str) -> int | None:
        """What the narrowest scope leaves of that kind; None: nothing limits it."""
        used = self._used()[kind]
        ends = [scope.ends_at[kind] for scope in self._open if kind in scope.ends_at]
        return max(0, min(ends) - used) if ends else None


def _narrowed(
    form: str, outer: SessionPolicy, lists: Mapping[str, tuple[str, ...]]
) -> SessionPolicy:
    """The outer policy, without what the lists leave out; a missing list leaves out nothing."""
    if not lists:
        return outer
    world = outer.world_rules
    try:
        asked = replace(
            outer,
            allowed_operations=frozenset(lists.get("allow", outer.allowed_operations)),
            denied_operations=frozenset(lists.get("deny", ())),
            world_rules=replace(
                world,
                read_patterns=Globs(lists.get("read", world.read_patterns.patterns)),
                write_patterns=Globs(lists.get("write", world.write_patterns.patterns)),
            ),
        )
    except GlobError as error:
        raise OperationFailed(f"{form}: {error}") from None
    return outer.narrowed(asked)


def _named(form: str, items: Value, names: tuple[str, ...]) -> dict[str, tuple[Value, ...]]:
    """Lists that begin with a name, by that name."""
    found: dict[str, tuple[Value, ...]] = {}
    if not isinstance(items, tuple):
        raise OperationFailed(f"{form}: the options must be a list")
    for item in items:
        if not (isinstance(item, tuple) and item and isinstance(item[0], Symbol)):
            raise OperationFailed(f"{form}: an option is a list that begins with its name")
        name = str(item[0])
        if name not in names or name in found:
            raise OperationFailed(f"{form}: options are {', '.join(names)}, each once; not {name}")
        found[name] = item[1:]
    return found


def _amount(form: str, name: str, items: tuple[Value, ...]) -> int:
    (amount,) = items if len(items) == 1 else (None,)
    if isinstance(amount, bool) or not isinstance(amount, int | float) or amount < 0:
        raise OperationFailed(f"{form}: {name} must be a number that is not negative")
    if name in _MILLIONTHS:
        return round(amount * 1_000_000)
    if not isinstance(amount, int):
        raise OperationFailed(f"{form}: {name} must be a whole number")
    return amount


def _texts(form: str, name: str, items: tuple[Value, ...]) -> tuple[str, ...]:
    texts = tuple(str(item) for item in items if isinstance(item, str))
    if len(texts) != len(items):
        raise OperationFailed(f"{form}: {name} must be followed by names or patterns")
    return texts
