"""The calls of tools in a model's answer, from pieces that an endpoint may send in any form."""

from typing import Any, NamedTuple

from orchestrator.models.messages import ToolCall

# Of one answer; others are counted only.
MOST_CALLS = 32
_MOST_NAME = 128


class AnswerCalls(NamedTuple):
    """The calls of an answer; `dropped` are those beyond the most that one has."""

    calls: tuple[ToolCall, ...] = ()
    dropped: int = 0


class CallPieces:
    """Puts streamed calls together. Whoever adds counts the bytes, which bounds the number."""

    def __init__(self) -> None:
        self._parts: dict[Any, list[str]] = {}
        self._dropped: set[Any] = set()

    def add(self, pieces: Any) -> int:
        """Takes what a chunk has as `tool_calls`; returns the bytes, at least one for each."""
        size = 0
        for place, piece in enumerate(pieces if isinstance(pieces, list) else ()):
            index = getattr(piece, "index", None)
            key = index if type(index) is int else place
            size += 1 + self._add(key, piece)
        return size

    def _add(self, key: int, piece: Any) -> int:
        function = getattr(piece, "function", None)
        name, arguments = _text(function, "name"), _text(function, "arguments")
        identity = _text(piece, "id")
        size = len((identity + name + arguments).encode(errors="replace"))
        if key not in self._parts:
            if len(self._parts) >= MOST_CALLS:
                self._dropped.add(key)
                return size
            self._parts[key] = ["", "", ""]
        part = self._parts[key]
        # Some endpoints repeat the id and the name with each piece.
        part[0] = part[0] or identity[:_MOST_NAME]
        part[1] = part[1] or name[:_MOST_NAME]
        part[2] += arguments
        return size

    @property
    def called(self) -> AnswerCalls:
        """The calls, in the order in which they began; each has an id of its own."""
        known: set[str] = set()
        calls = []
        for number, (identity, name, arguments) in enumerate(self._parts.values()):
            if not identity.isascii() or not identity.isprintable() or identity in {"", *known}:
                identity = f"call-{number}"
            known.add(identity)
            calls.append(ToolCall(identity, name, arguments))
        return AnswerCalls(tuple(calls), len(self._dropped))


def _text(value: Any, member: str) -> str:
    found = getattr(value, member, None)
    return found if isinstance(found, str) else ""
