"""What executes cells: an engine for each language, chosen by what the image has."""

import shutil
from typing import Protocol

from sandbox_agent.code.channel import Channel


class NoSuchLanguageError(Exception):
    """`known` are the languages that this sandbox has."""

    def __init__(self, known: list[str]) -> None:
        super().__init__("there is no such language")
        self.known = known


class Engine(Protocol):
    """Executes cells.

    `kernel` names what does. `over`: nothing more can be executed. An interrupt is raised in `run`
    as KeyboardInterrupt, and child processes get SIGINT themselves.
    """

    kernel: str
    over: bool

    def run(self, code: str, count: int) -> None:
        """Executes one cell, the `count`th, and sends its values and its error."""

    def close(self) -> None:
        """Ends what it started."""


def engine_of(language: str, channel: Channel) -> Engine:
    """The engine of a language. Raises: NoSuchLanguageError."""
    from sandbox_agent.code.python import PythonEngine

    if language == "python":
        return PythonEngine(channel)
    raise NoSuchLanguageError(["python"])


def installed(program: str) -> bool:
    """Whether there is a program of that name."""
    return shutil.which(program) is not None
