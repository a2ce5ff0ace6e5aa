"""Regular expressions whose search takes time linear in the text, whatever the pattern is. Pure.

They have literals, `.`, classes, `\\d \\w \\s` and their opposites, groups, `|`, `* + ?`, `{m,n}`,
`^`, `$`, `\\b` and `\\B`. What needs backtracking, as back references and lookaround, is refused.
The pattern becomes an automaton whose sets of states are made as they are met, and kept.
"""

from typing import NamedTuple

from sandbox_agent.decide.files.pattern_parser import (
    MOST_CHARACTERS,
    Node,
    PatternError,
    PatternReader,
    Takes,
    is_word,
)

# Of the automaton, with repetitions written out.
_MOST_STATES = 1024
# Kept steps of the automaton; beyond them, they are made anew.
_MOST_KEPT = 50_000


class _State(NamedTuple):
    """A state: it takes a character, requires a place, or leads on without either."""

    takes: Takes | None
    place: str | None
    next: tuple[int, ...]


class Pattern:
    """A compiled pattern. Raises: PatternError from the constructor."""

    def __init__(self, text: str, *, ignore_case: bool = False) -> None:
        if not 1 <= len(text) <= MOST_CHARACTERS:
            raise PatternError(f"must have 1 to {MOST_CHARACTERS} characters")
        self._states: list[_State] = [_State(None, None, ())]  # the first one accepts
        self._start = self._build(PatternReader(text, ignore_case).parse(), 0)
        self._kept: dict[tuple[frozenset[int], bool], dict[str, tuple[frozenset[int], bool]]] = {}
        self._size = 0

    def found_in(self, line: str) -> bool:
        """Whether something in this line matches."""
        states: frozenset[int] = frozenset((self._start,))
        # Whether the character before is one of a word; at the beginning, `first` counts, too.
        word = False
        first = True
        for character in line:
            following = None if first else self._kept.get((states, word), {}).get(character)
            if following is None:
                following = self._step(states, word, character, first)
            states, accepted = following
            if accepted:
                return True
            word = is_word(character)
            first = False
        return 0 in self._closed(states, word, None, first)

    def _step(
        self, states: frozenset[int], word: bool, character: str, first: bool
    ) -> tuple[frozenset[int], bool]:
        closed = self._closed(states, word, character, first)
        if 0 in closed:
            return states, True
        reached = {self._start}
        for number in closed:
            state = self._states[number]
            if state.takes is not None and state.takes(character):
                reached.update(state.next)
        following = frozenset(reached), False
        if not first:
            self._size += 1
            if self._size > _MOST_KEPT:
                self._kept.clear()
                self._size = 1
            self._kept.setdefault((states, word), {})[character] = following
        return following

    def _closed(
        self, states: frozenset[int], word: bool, character: str | None, first: bool
    ) -> set[int]:
        """All states that are reached between two characters; None is the end of the line."""
        edge = word != (character is not None and is_word(character))
        holds = {
            "begin": first,
            "end": character is None,
            "word edge": edge,
            "no word edge": not edge,
        }
        closed = set(states)
        waiting = list(states)
        while waiting:
            state = self._states[waiting.pop()]
            if state.takes is None and (state.place is None or holds[state.place]):
                new = set(state.next) - closed
                closed |= new
                waiting += new
        return closed

    def _add(self, *state: object) -> int:
        if len(self._states) >= _MOST_STATES:
            raise PatternError("needs too many states: repeat less")
        self._states.append(_State(*state))  # type: ignore[arg-type]
        return len(self._states) - 1

    def _build(self, node: Node, after: int) -> int:
        """Adds the states of a part that `after` follows; returns its first state."""
        if node.kind == "takes":
            return self._add(node.takes, None, (after,))
        if node.kind == "place":
            return self._add(None, node.place, (after,))
        if node.kind == "all":
            for part in reversed(node.parts):
                after = self._build(part, after)
            return after
        if node.kind == "any":
            return self._add(None, None, tuple(self._build(part, after) for part in node.parts))
        (part,) = node.parts
        if node.most is None:
            loop = self._add(None, None, ())
            self._states[loop] = _State(None, None, (self._build(part, loop), after))
            after = loop
        else:
            end = after
            for _ in range(node.most - node.least):
                after = self._add(None, None, (self._build(part, after), end))
        for _ in range(node.least):
            after = self._build(part, after)
        return after
