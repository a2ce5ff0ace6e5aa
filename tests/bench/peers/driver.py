"""What the benchmark does with each contender."""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple, Protocol

# The first command in a new sandbox; every permission level allows it.
FIRST = "pwd"
# Requests of one worker at the same time; peers that block need as many threads.
AT_ONCE = 8
LINE = "6 * 7"
ANSWER = "42"


class UnsupportedError(Exception):
    """The contender has no such operation."""


class Options(NamedTuple):
    """What a driver is told: the sandboxes' image, and where Paddock listens."""

    image: str
    url: str = ""
    key: str = ""
    level: str = ""
    # How Paddock's sandboxes are to start: "cold" or "warm".
    start: str = "cold"
    # The engine's network of containers without Paddock.
    network: str = "none"


class Sandbox(Protocol):
    """One running sandbox. Every operation returns when its result is there."""

    container: str

    async def run(self, program: str) -> None:
        """Runs a program without arguments. Raises: RuntimeError if it fails."""

    async def line(self) -> None:
        """Sends `LINE` to an interactive Python that keeps its state, and receives `ANSWER`."""

    async def send_file(self, local: Path) -> None:
        """Copies a file into the sandbox."""

    async def fetch_file(self, local: Path) -> None:
        """Copies the file that was sent back to a new place."""

    async def send_tree(self, local: Path) -> None:
        """Copies a directory into the sandbox."""

    async def fetch_tree(self, local: Path) -> None:
        """Copies the directory that was sent back to a new place."""

    async def close(self) -> None:
        """Removes the sandbox."""


class Driver(Protocol):
    """A contender."""

    async def create(self) -> Sandbox:
        """A new sandbox that can run commands."""

    async def close(self) -> None:
        """Ends the driver's connections."""


def require(is_so: bool, what: str) -> None:
    """Raises: RuntimeError if a contender did not do what is measured."""
    if not is_so:
        raise RuntimeError(f"not as expected: {what}")


def read_options() -> Options:
    """The first line of standard input."""
    return Options(**json.loads(sys.stdin.readline()))


def answer(stream: Any, **members: Any) -> None:
    """Writes one line of JSON."""
    print(json.dumps(members), file=stream, flush=True)
