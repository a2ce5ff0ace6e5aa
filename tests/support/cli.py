"""Runs the command line in this process, as a shell would."""

import asyncio
import contextlib
import io
import sys
from dataclasses import dataclass
from typing import Any
from unittest import mock

from paddock.cli import main


@dataclass(frozen=True)
class Ended:
    """A command's result."""

    status: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The single line of an error."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        return lines[0]


class Stream(io.TextIOWrapper):
    """A standard stream that keeps its bytes."""

    def __init__(self, data: bytes = b"", *, terminal: bool = False) -> None:
        self.bytes = io.BytesIO(data)
        super().__init__(self.bytes, encoding="utf-8", write_through=True)
        self.terminal = terminal

    def isatty(self) -> bool:
        """Whether it acts as a terminal."""
        return self.terminal

    def text(self) -> str:
        """The text written so far."""
        return self.bytes.getvalue().decode()


def run(*arguments: str, stdin: bytes = b"", terminal: bool = False) -> Ended:
    """Runs `paddock …` with the current environment."""
    out, err = Stream(terminal=terminal), Stream(terminal=terminal)
    with (
        mock.patch.object(sys, "stdin", Stream(stdin)),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        status = main(list(arguments))
    return Ended(status, out.text(), err.text())


async def run_beside(*arguments: str, **options: Any) -> Ended:
    """The same outside the event loop, which serves the API meanwhile."""
    return await asyncio.to_thread(run, *arguments, **options)
