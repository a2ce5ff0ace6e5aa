"""The calls of tools in a model's answer, from pieces that an endpoint may send in any form."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from orchestrator.work.models.errors import ModelError, ModelFailure
from orchestrator.work.models.extras import merge, of_call
from orchestrator.work.models.messages import ToolCall

# Calls that are kept of one answer; further ones are counted, and too many are an error.
MOST_CALLS = 32
_MOST_COUNTED = 1024
_MOST_NAME = 128


class AnswerCalls(NamedTuple):
    """The calls of an answer; `dropped` are those beyond the most that one has."""

    calls: tuple[ToolCall, ...] = ()
    dropped: int = 0


@dataclass(slots=True, eq=False)
class _Part:
    """One call as far as it has come; `arguments` in pieces."""

    id: str
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether its arguments look complete."""
        return bool(self.arguments) and self.arguments[-1].rstrip().endswith("}")


class _Named(NamedTuple):
    """The name and the arguments in a piece."""

    name: str
    arguments: str

    def begins_after(self, part: _Part, *, indexed: bool) -> bool:
        """Whether it is another call than that one, which has no other mark."""
        other = not indexed or self.name != part.name or self.arguments.lstrip().startswith("{")
        return bool(self.name) and part.whole and other


class CallPieces:
    """Puts streamed calls together. Whoever adds counts the bytes, which bounds their number.

    Endpoints tell pieces of one call by an index, an id, both, or neither. A new id begins a new
    call, whatever the index; without an id, a name and arguments after whole arguments do.
    """

    def __init__(self) -> None:
        # The call to which pieces with an index, or at a place, belong; and all calls, in order.
        self._latest: dict[int, _Part] = {}
        self._known: dict[tuple[int, str], _Part] = {}
        self._parts: list[_Part] = []
        self._count = 0

    def add(self, pieces: Any) -> int:
        """Takes what a chunk has as `tool_calls`; returns the bytes, at least one for each.

        Raises: ModelError for more calls than any honest answer has.
        """
        size = 0
        pieces = pieces if isinstance(pieces, list) else []
        if len(pieces) > _MOST_COUNTED:
            raise _too_many()
        for place, piece in enumerate(pieces):
            if isinstance(piece, dict):
                size += self._add(place, piece)
            size += 1
        return size

    def _add(self, place: int, piece: dict[str, Any]) -> int:
        function = piece.get("function")
        function = function if isinstance(function, dict) else {}
        name, arguments = _text(function.get("name")), _arguments(function.get("arguments"))
        identity = _text(piece.get("id"))[:_MOST_NAME]
        part = self._part(piece.get("index"), place, identity, _Named(name, arguments))
        if name and name != part.name and not part.arguments:
            part.name = (part.name + name)[:_MOST_NAME]  # it may come in pieces, or repeatedly
        if arguments:
            part.arguments.append(arguments)
        size = len((identity + name + arguments).encode(errors="replace"))
        for member, value in of_call(piece):
            size += len(member) + len(json.dumps(value))
            merge(part.extra, member, value)
        return size

    def _part(self, index: Any, place: int, identity: str, named: _Named) -> _Part:
        """The call to which a piece belongs."""
        indexed = type(index) is int
        key = index if indexed else place
        part = self._latest.get(key)
        if part is not None and identity and part.id and identity != part.id:
            part = self._known.get((key, identity))
        elif part is not None and not identity and named.begins_after(part, indexed=indexed):
            part = None
        if part is None:
            part = self._begin(identity)
        part.id = part.id or identity
        self._latest[key] = part
        if part.id:
            self._known[key, part.id] = part
        return part

    def _begin(self, identity: str) -> _Part:
        self._count += 1
        if self._count > _MOST_COUNTED:
            raise _too_many()
        part = _Part(identity)
        if len(self._parts) < MOST_CALLS:
            self._parts.append(part)
        return part

    @property
    def called(self) -> AnswerCalls:
        """The calls, in the order in which they began; each has an id of its own."""
        known: set[str] = set()
        calls = []
        for number, part in enumerate(self._parts):
            identity = part.id
            if not identity.isascii() or not identity.isprintable() or identity in {"", *known}:
                identity = f"call-{number}"
            known.add(identity)
            calls.append(ToolCall(identity, part.name, "".join(part.arguments)))
        return AnswerCalls(tuple(calls), self._count - len(calls))

    @property
    def extras(self) -> dict[int, dict[str, Any]]:
        """What the calls have besides, by their places."""
        return {place: part.extra for place, part in enumerate(self._parts) if part.extra}


def _too_many() -> ModelError:
    return ModelError(ModelFailure.TOO_LARGE, f"the answer has more than {_MOST_COUNTED} calls")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _arguments(value: Any) -> str:
    """Arguments as text; some endpoints send the object itself."""
    return json.dumps(value) if isinstance(value, dict) else _text(value)


def texts_of(content: Any) -> str:
    """The text of a message's content, which may be a list of parts."""
    if isinstance(content, str):
        return content
    return "".join(_texts(content)) if isinstance(content, list) else ""


def _texts(parts: Iterable[Any]) -> Iterable[str]:
    for part in parts:
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict) and part.get("type", "text") in ("text", "output_text"):
            yield _text(part.get("text"))
