"""What is known about each session: the latest notes, and none of one that has ended."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from orchestrator.state.session import Session

Name = TypeVar("Name", bound=Hashable)
Value = TypeVar("Value")


class Notes(Generic[Name, Value]):
    """Values by names. A session that has more than `most` loses its own oldest ones."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: dict[str, OrderedDict[Name, Value]] = {}

    def __len__(self) -> int:
        """How many there are."""
        return sum(map(len, self._found.values()))

    def put(self, session: Session, name: Name, value: Value) -> None:
        """Notes a value, which is the session's latest one now."""
        notes = self._found.get(session.key)
        if notes is None:
            notes = self._found[session.key] = OrderedDict()
            session.over.add_done_callback(lambda _: self._found.pop(session.key, None))
        notes[name] = value
        notes.move_to_end(name)
        if len(notes) > self._most:
            notes.popitem(last=False)

    def get(self, session_key: str, name: Name) -> Value | None:
        """The value; None if there is none."""
        notes = self._found.get(session_key)
        return None if notes is None else notes.get(name)
