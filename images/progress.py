"""Prints one line per step to a terminal or a log."""

import os
import shutil
import sys

_CYAN, _DIM, _RED = "36;1", "2", "31;1"


def step(text: str) -> None:
    """Prints a step that begins, or its result."""
    _print("==>", _CYAN, text, "0")


def detail(text: str) -> None:
    """Shows one line of a long step's own output, cut to the terminal's width."""
    width = shutil.get_terminal_size().columns - 5 if sys.stdout.isatty() else 160
    for line in text.splitlines():
        if line.strip():
            _print("   ", "0", " ".join(line.split())[:width], _DIM)


def failure(text: str) -> None:
    """Prints in one line what is wrong and what to do."""
    _print("error:", _RED, text, "0")


def _print(mark: str, mark_colour: str, text: str, text_colour: str) -> None:
    if sys.stdout.isatty() and "NO_COLOR" not in os.environ:
        mark, text = f"\033[{mark_colour}m{mark}\033[0m", f"\033[{text_colour}m{text}\033[0m"
    print(mark, text, flush=True)
