"""Splits a terminal's output into interactions: echo, output, prompt. Pure.

The prompt is the last line, unterminated and untrimmed, if all of it matches the manifest's
pattern. It is not a line within output, the echo of the input, or the previous prompt. If a tool
prints output without a newline before its prompt, the prompt can't be recognized (`42appdb=> `
could be data), and the interaction times out.
"""

from typing import NamedTuple, Protocol

from orchestrator.work.terminals.screen import Screen
from sandbox_agent.decide.sanitize import MAX_TEXT

# In characters; a longer line is not a prompt.
_LONGEST_PROMPT = 4096
# Room on a line for a prompt and an echo, in addition to output.
_LONGEST_ECHO = _LONGEST_PROMPT + MAX_TEXT


class PromptPattern(Protocol):
    """A compiled pattern that matches whole texts."""

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""


class Output(NamedTuple):
    """The text between an echo and its prompt; `truncated` if only the beginning was kept."""

    text: str
    truncated: bool


class Framing:
    """One terminal's output. `limit` bounds the kept output of one interaction, in bytes.

    The terminal is wide enough for any echo, so none is wrapped or shortened.
    """

    def __init__(self, ready: PromptPattern, limit: int) -> None:
        self._ready = ready
        self._limit = limit
        self._screen = Screen(limit + _LONGEST_ECHO)
        self._begin("", None)

    def begin(self, sent: str, prompt: str) -> None:
        """From here on, output answers this line, which was sent at that prompt."""
        self._begin(self._screen.line, sent)
        self._prompt = prompt

    def rest(self) -> None:
        """From here on, output answers no line."""
        self._begin(self._screen.line, None)

    def _begin(self, before: str, sent: str | None) -> None:
        self._prompt = ""
        # Whether a complete line, after the echo's, begins with the prompt.
        self._passed = False
        self._before = before
        self._sent = sent
        # The first line's content, if the tool echoes.
        self._echo = None if sent is None else before + sent
        self._ended_lines = 0
        self._kept: list[str] = []
        self._room = self._limit
        self._truncated = False

    def feed(self, data: bytes) -> None:
        """Processes more output."""
        for line in self._screen.feed(data):
            first = not self._ended_lines
            self._ended_lines += 1
            if not first:
                self._passed |= bool(self._prompt) and line.startswith(self._prompt)
                self._keep(line)
            elif line != self._echo:  # the tool does not echo
                self._keep(line.removeprefix(self._before))

    @property
    def prompt(self) -> str | None:
        """The prompt that is shown now, if any."""
        if self._screen.length > _LONGEST_ECHO:
            return None
        line = self._unended()
        if line is None or len(line) > _LONGEST_PROMPT:
            return None
        return line if self._ready.matches(line) else None

    @property
    def prompted(self) -> bool:
        """Whether the prompt was shown again, followed by complete lines.

        A tool that then waits for input is at its prompt: something in its background printed the
        lines.
        """
        return self._passed and not self._screen.length

    def output(self) -> Output:
        """The output of this interaction so far, without a prompt that is shown."""
        kept, truncated = list(self._kept), self._truncated
        line = self._unended()
        if line and not truncated and self.prompt is None:
            data = (line if self._ended_lines else line.removeprefix(self._before)).encode()
            kept.append(data[: max(0, self._room)].decode(errors="ignore"))
            truncated = len(data) > self._room
        return Output("\n".join(kept), truncated)

    def _unended(self) -> str | None:
        """The last line, without its echo and what was shown before; None while incomplete."""
        line = self._screen.line
        if self._sent is None or self._ended_lines:
            return line
        rest = line.removeprefix(self._before)
        return None if self._sent.startswith(rest) else rest

    def _keep(self, line: str) -> None:
        """Keeps a line, as far as there is room; after a shortened line, nothing more."""
        if self._truncated or self._room < 0:
            self._truncated = True
            return
        data = line.encode()
        if len(data) > self._room:
            self._truncated = True
            data = data[: self._room]
        self._kept.append(data.decode(errors="ignore"))
        self._room -= len(data) + len("\n")
