"""`sort`: sorted runs are merged, so that others can run in between."""

from collections.abc import Generator
from typing import Any

from orchestrator.programs.turns.lisp.builtins.primitive import Applied, Steps
from orchestrator.programs.turns.lisp.data import TEXTS, Cons, Datum, chain, is_false
from orchestrator.programs.turns.lisp.errors import Problem
from orchestrator.programs.turns.lisp.limits import BURST, Allowance
from orchestrator.programs.turns.outcome import Symbol

# Elements that Python sorts at once.
_RUN = 1000

# Merges two sorted runs into one.
_Merged = Generator[Any, Any, list[Datum]]


def sort(allowance: Allowance, items: Cons, less: Datum = None) -> Steps:
    """Merges sorted runs of twice the length each round. Equal elements stay in order."""
    allowance.cells(items.length)
    if less is None:
        runs = yield from _sorted_runs(allowance, items)
    else:
        runs = [[item] for item in items]
    while len(runs) > 1:
        merged = []
        for at in range(0, len(runs) - 1, 2):
            if less is None:
                merged.append((yield from _merged(allowance, runs[at], runs[at + 1])))
            else:
                merged.append((yield from _merged_by(less, runs[at], runs[at + 1])))
        runs = [*merged, *(runs[-1:] if len(runs) % 2 else [])]
    return chain(runs[0] if runs else [])


def _sorted_runs(allowance: Allowance, items: Cons) -> Generator[Any, Any, list[list[Datum]]]:
    """Raises: Problem for elements that have no order."""
    kinds = {float if type(item) is int else type(item) for item in items}
    if len(kinds) > 1 or not kinds <= {float, str, Symbol}:
        raise Problem(
            "sort needs only numbers, only strings or only symbols; "
            "give it a function that compares: (sort list less?)"
        )
    left = list(items)
    runs = []
    for at in range(0, len(left), _RUN):
        run = left[at : at + _RUN]
        allowance.work(len(run) + _RUN.bit_length() * sum(map(_weight, run)))
        yield from allowance.rest()
        runs.append(sorted(run))
    return runs


def _merged(allowance: Allowance, one: list[Datum], other: list[Datum]) -> _Merged:
    run: list[Datum] = []
    left = right = 0
    while left < len(one) and right < len(other):
        first, second = one[left], other[right]
        allowance.work(1 + min(_weight(first), _weight(second)))
        if allowance.burst > BURST:
            yield from allowance.rest()
        if second < first:
            run.append(second)
            right += 1
        else:
            run.append(first)
            left += 1
    return run + one[left:] + other[right:]


def _merged_by(less: Datum, one: list[Datum], other: list[Datum]) -> _Merged:
    run: list[Datum] = []
    left = right = 0
    while left < len(one) and right < len(other):
        if is_false((yield Applied(less, [other[right], one[left]]))):
            run.append(one[left])
            left += 1
        else:
            run.append(other[right])
            right += 1
    return run + one[left:] + other[right:]


def _weight(item: Datum) -> int:
    """The cost of a comparison with the item, besides that of looking at two."""
    if type(item) in TEXTS:
        return len(item) >> 6
    # A large integer is slow to compare with a decimal.
    return item.bit_length() >> 6 if type(item) is int else 0
