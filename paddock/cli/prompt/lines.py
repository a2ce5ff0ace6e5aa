"""Lines that a person types: with history, and names that Tab completes."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

_MOST_LINES = 1000
_DELIMITERS = " \t\n()'`,;\"|"


class Lines(Protocol):
    """Where lines come from."""

    def read(self, more: bool) -> str | None:
        """The next line; None at the end. `more`: a form has begun in earlier ones."""

    def keep(self) -> None:
        """Keeps the history."""


class PipedLines:
    """Lines of standard input that is no terminal."""

    def read(self, more: bool) -> str | None:
        """The next line; None at the end."""
        return sys.stdin.readline() or None

    def keep(self) -> None:
        """There is no history."""


class TypedLines:
    """Lines that are typed at a prompt."""

    def __init__(self, prompt: str, names: Sequence[str], history: Path) -> None:
        import readline

        self._readline = readline
        self._prompt = prompt
        self._names = names
        self._history = _private(history)
        self._found: list[str] = []
        readline.clear_history()
        readline.set_history_length(_MOST_LINES)
        if self._history is not None:
            readline.read_history_file(self._history)
        readline.set_completer_delims(_DELIMITERS)
        readline.set_completer(self._complete)
        readline.parse_and_bind("tab: complete")

    def read(self, more: bool) -> str | None:
        """The next line; None at the end. Raises: KeyboardInterrupt."""
        try:
            shown = "." * (len(self._prompt) - 1) + " " if more else self._prompt
            return input(shown) + "\n"
        except EOFError:
            print()
            return None

    def keep(self) -> None:
        """Writes the history, which only the user can read."""
        if self._history is not None:
            self._readline.write_history_file(self._history)

    def _complete(self, begun: str, number: int) -> str | None:
        if number == 0:
            self._found = [name for name in self._names if name.startswith(begun)]
        return self._found[number] if number < len(self._found) else None


def history_path(name: str) -> Path:
    """The file of that name in the user's state directory."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "paddock" / name


def _private(path: Path) -> Path | None:
    """Creates the file, for its user only. None if that fails: then no history is kept."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        os.fchmod(file, 0o600)
        os.close(file)
    except OSError:
        return None
    return path
