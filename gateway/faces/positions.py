"""Positions in what several nodes have: one opaque text for all of them. No I/O.

A client sends such a text back as it got it, to any gateway, so the text has everything: nothing is
kept. It names what it is a position in and the cluster, because a position of another cluster, or
of another list, would be a wrong one and look like a right one. Each position has one text only.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from orchestrator.ground.errors import ValidationError

# A cluster has at most so many nodes whose positions fit into a header.
MOST_NODES = 1024
# 1,024 names of 12 characters, or 256 of 64, each with its number, in base64.
MOST_CHARACTERS = 32 * 1024
_MOST_NUMBER = 2**64
_NODE = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?"
_NUMBER = r"(?:0|[1-9][0-9]{0,19})"
_TEXT = re.compile(rf"([a-z]+) ([0-9a-f]{{8}}) ({_NUMBER})((?: {_NODE}:{_NUMBER})*)", re.ASCII)


class Series(StrEnum):
    """What a position is a position in."""

    EVENTS = "events"
    SEARCH = "search"
    APPROVALS = "approvals"


@dataclass(frozen=True, slots=True)
class Position:
    """A number for each node: what it counts depends on the series.

    `since` is when the client began, in microseconds since 1970: nodes that have no number are read
    from then on. 0: from their first event.
    """

    of_nodes: Mapping[str, int] = field(default_factory=dict)
    since: int = 0


class Positions:
    """Writes and reads the positions of one series in one cluster."""

    def __init__(self, cluster: str, series: Series) -> None:
        self._head = f"{series} {hashlib.sha256(cluster.encode()).hexdigest()[:8]}"

    def write(self, position: Position) -> str:
        """The text of a position, which is safe in URLs and headers."""
        parts = [f"{node}:{number}" for node, number in sorted(position.of_nodes.items())]
        text = " ".join((self._head, str(position.since), *parts))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    def read(self, text: str, name: str) -> Position:
        """The position that `write` has written as this text.

        `name` is the parameter's. Raises: ValidationError for every other text.
        """
        position = self._parsed(text)
        # What is read differently from how it was written was written by somebody else.
        if position is None or self.write(position) != text:
            raise ValidationError(f"{name} is not a position that this cluster gave", field=name)
        return position

    def _parsed(self, text: str) -> Position | None:
        if len(text) > MOST_CHARACTERS or not text.isascii():
            return None
        try:
            written = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("ascii")
        except (binascii.Error, UnicodeDecodeError):
            return None
        found = _TEXT.fullmatch(written)
        if found is None or f"{found[1]} {found[2]}" != self._head:
            return None
        pairs = [part.split(":") for part in found[4].split()]
        numbers = {node: int(number) for node, number in pairs}
        largest = max((int(found[3]), *numbers.values()))
        if len(pairs) > MOST_NODES or len(numbers) < len(pairs) or largest >= _MOST_NUMBER:
            return None
        return Position(numbers, int(found[3]))
