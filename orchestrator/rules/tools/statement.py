"""What a parser says of a statement of SQL."""

from typing import NamedTuple


class SqlError(ValueError):
    """A text that is not one statement with known effects; the message says why."""


class Statement(NamedTuple):
    """The effects of a statement. `select` appears alone, because everything else reads, too.

    `functions` are those that are not known to be harmless, in lower case and with their schema if
    it is given.
    """

    actions: frozenset[str]
    functions: frozenset[str]
