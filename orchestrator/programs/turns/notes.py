"""What a session's programs remember from turn to turn: definitions, facts and results."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from orchestrator.programs.turns.outcome import Value
from orchestrator.programs.turns.programs import OperationFailed
from orchestrator.programs.turns.stored_values import json_text, to_text

# Of each session.
_MOST_FACTS = 1000
_MOST_MEMOS = 1000
_MOST_CHARACTERS = 1024 * 1024


@dataclass(slots=True)
class Notes:
    """The notes of one session, as a turn finds and leaves them.

    `environment` is the text of its definitions. Facts and results are in the form of
    `stored_values`.
    """

    environment: str = ""
    facts: dict[str, None] = field(default_factory=dict)
    memos: dict[str, str] = field(default_factory=dict)

    def stored(self) -> dict[str, Any]:
        """The notes as JSON values, in which the program's texts stay as they are."""
        facts, memos = self.facts, self.memos
        return {
            "environment": self.environment,
            "facts": [json.loads(text) for text in facts],
            "memos": [[digest, json.loads(text)] for digest, text in memos.items()],
        }

    @classmethod
    def restored(cls, values: Mapping[str, Any]) -> Self:
        """The notes that were stored."""
        return cls(
            values["environment"],
            dict.fromkeys(json_text(fact) for fact in values["facts"]),
            {digest: json_text(value) for digest, value in values["memos"]},
        )

    def assert_fact(self, fact: Value) -> bool:
        """Adds a fact; False if it was known. Raises: OperationFailed if there are too many."""
        text = to_text(fact)
        if text in self.facts:
            return False
        if len(self.facts) >= _MOST_FACTS:
            raise OperationFailed(f"assert: a session keeps at most {_MOST_FACTS} facts")
        self._check_room("assert", text)
        self.facts[text] = None
        return True

    def forget_after(self, number: int | None) -> None:
        """Keeps the oldest facts, that many; None: all."""
        if number is not None:
            for text in list(self.facts)[number:]:
                del self.facts[text]

    def knows(self, fact: Value) -> bool:
        """Whether the fact was asserted."""
        return to_text(fact) in self.facts

    def keep(self, digest: str, value: Value) -> None:
        """Keeps a result; the oldest make room for it. Raises: OperationFailed if it is long."""
        text = to_text(value)
        self.memos.pop(digest, None)
        size = self._size + len(text)
        while self.memos and (len(self.memos) >= _MOST_MEMOS or size > _MOST_CHARACTERS):
            size -= len(self.memos.pop(next(iter(self.memos))))
        self._check_room("memo", text)
        self.memos[digest] = text

    @property
    def _size(self) -> int:
        """The characters of all facts and results."""
        return sum(map(len, self.facts)) + sum(map(len, self.memos.values()))

    def _check_room(self, operation: str, text: str) -> None:
        if self._size + len(text) > _MOST_CHARACTERS:
            raise OperationFailed(
                f"{operation}: a session's facts and results have at most {_MOST_CHARACTERS} "
                "characters"
            )
