"""What tables find values by."""

from collections.abc import Hashable

from orchestrator.programs.turns.lisp.data import ATOMS, Datum


def table_key(value: Datum) -> Hashable | None:
    """The key of a number, text, symbol, boolean or nil; None for other values.

    Values that are `equal` have equal keys. Python's hashes of numbers can be chosen: all
    multiples of 2^61-1 have one, and a table of them is a list. So numbers are found by their
    text, because the hash of a text depends on a secret of the process.
    """
    kind = type(value)
    if kind is int:
        return kind, hex(value)
    if kind is float:
        return kind, (value + 0.0).hex()  # -0.0 is 0.0
    return (kind, value) if kind in ATOMS else None
