"""What a terminal says, cut into interactions: echo, output, prompt. Pure.

The prompt is the last line, not ended and not trimmed, when the whole of it matches the
manifest's pattern: not a line within output, not the echo of what was sent, and not the prompt
from before. So a tool that leaves output without a newline before its prompt is not at its
prompt as far as anybody can tell (`42appdb=> ` could be data), and its interaction times out.
"""

from typing import NamedTuple, Protocol

from orchestrator.terminals.screen import Screen

# What readline puts first on a line of which it shows only the end.
_SCROLLED = "<"
# In characters; what is longer is no prompt.
_LONGEST_PROMPT = 4096
# Room on a line for a prompt and an echo, besides output.
_LONGEST_ECHO = 3 * _LONGEST_PROMPT


class Pattern(Protocol):
    """A compiled pattern that decides on whole texts."""

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""


class Output(NamedTuple):
    """The text between an echo and its prompt; `truncated` when it is only the beginning."""

    text: str
    truncated: bool


class Framing:
    """One terminal's output. `limit` bounds the output that is kept of one interaction, in bytes.

    `columns` is the terminal's width: where an echo can have been wrapped.
    """

    def __init__(self, ready: Pattern, limit: int, columns: int) -> None:
        self._ready = ready
        self._limit = limit
        self._columns = columns
        self._screen = Screen(limit + _LONGEST_ECHO)
        self._begin("", None)

    def begin(self, sent: str) -> None:
        """From here on, what is said answers this line."""
        self._begin(self._screen.line, sent)

    def _begin(self, shown: str, sent: str | None) -> None:
        self._shown = shown
        self._sent = sent
        # What is still expected of the echo, and which lines were taken for a part of it.
        self._echo = None if sent is None else shown + sent
        self._echoed: list[str] = []
        self._ended_lines = 0
        self._kept: list[str] = []
        self._room = self._limit
        self._truncated = False

    def feed(self, data: bytes) -> None:
        """The tool said more."""
        for line in self._screen.feed(data):
            self._ended_lines += 1
            if self._echo is None:
                self._keep(line)
            else:
                self._match_echo(line, self._echo)

    @property
    def prompt(self) -> str | None:
        """The prompt that is shown now, if one is."""
        if self._screen.length > _LONGEST_ECHO:
            return None
        line = self._unended()
        if line is None or len(line) > _LONGEST_PROMPT:
            return None
        return line if self._ready.matches(line) else None

    def output(self) -> Output:
        """The output of this interaction so far; without the prompt, when one is shown."""
        kept, truncated = list(self._kept), self._truncated
        line = self._unended()
        if line and not truncated and self.prompt is None:
            data = line.encode()
            kept.append(data[: max(0, self._room)].decode(errors="ignore"))
            truncated = len(data) > self._room
        return Output("\n".join(kept), truncated)

    def _unended(self) -> str | None:
        """The last line, without what was shown before and its echo; None while that comes."""
        line = self._screen.line
        if self._sent is None or self._ended_lines:
            return line
        rest = line.removeprefix(self._shown)
        return None if self._sent.startswith(rest) else rest

    # The echo

    def _match_echo(self, line: str, expected: str) -> None:
        if line == expected or self._is_scrolled(line, expected):
            self._echo = None
        elif self._is_wrapped(line, expected):
            self._echoed.append(line)
            self._echo = expected[len(line) :]
        else:  # it was none: the tool does not echo
            self._echo = None
            first, *rest = [*self._echoed, line]
            for said in (first.removeprefix(self._shown), *rest):
                self._keep(said)

    def _is_wrapped(self, line: str, expected: str) -> bool:
        """Whether it is a piece that fills the terminal's width."""
        return abs(len(line) - self._columns) <= 1 and expected.startswith(line)

    def _is_scrolled(self, line: str, expected: str) -> bool:
        """Whether it is the end of an echo that is longer than the terminal is wide."""
        return (
            len(expected) > self._columns - len(_SCROLLED)
            and line.startswith(_SCROLLED)
            and len(line) > len(_SCROLLED)
            and expected.endswith(line[len(_SCROLLED) :].rstrip(" "))
        )

    def _keep(self, line: str) -> None:
        """Keeps a line, or what there is room for; after one that was cut nothing more."""
        if self._truncated or self._room < 0:
            self._truncated = True
            return
        data = line.encode()
        if len(data) > self._room:
            self._truncated = True
            data = data[: self._room]
        self._kept.append(data.decode(errors="ignore"))
        self._room -= len(data) + len("\n")
