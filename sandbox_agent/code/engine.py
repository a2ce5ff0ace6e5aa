"""What executes cells: an engine for each language, chosen by what the image has."""

import shutil
from typing import Protocol

from sandbox_agent.code.bash import BashEngine
from sandbox_agent.code.channel import Channel
from sandbox_agent.code.javascript import JavaScriptEngine
from sandbox_agent.code.jupyter import JupyterEngine, kernels
from sandbox_agent.code.python import PythonEngine


class NoSuchLanguageError(Exception):
    """`known` are the languages that this sandbox has."""

    def __init__(self, known: list[str]) -> None:
        super().__init__("there is no such language")
        self.known = known


class Engine(Protocol):
    """Executes cells.

    `kernel` names what does. `over`: nothing more can be executed. Child processes get SIGINT
    themselves.
    """

    kernel: str
    over: bool

    def run(self, code: str, count: int) -> None:
        """Executes one cell, the `count`th, and sends its values and its error."""

    def interrupt(self) -> None:
        """Interrupts the cell: it is called by the signal's handler, in the middle of `run`.

        What it raises is raised in `run`, which then loses what it was about to take.
        """

    def close(self) -> None:
        """Ends what it started."""


def engine_of(language: str, channel: Channel) -> Engine:
    """The engine of a language: a kernel of Jupyter where there is one, else one of these.

    Raises: NoSuchLanguageError.
    """
    found = kernels()
    if language in found:
        return JupyterEngine(channel, found[language])
    if language == "python":
        return PythonEngine(channel)
    if language == "bash" and shutil.which("bash"):
        return BashEngine(channel)
    if language == "javascript" and shutil.which("node"):
        return JavaScriptEngine(channel)
    programs = {"bash": "bash", "javascript": "node"}
    others = {name for name, program in programs.items() if shutil.which(program)}
    raise NoSuchLanguageError(sorted({"python", *others, *found}))
