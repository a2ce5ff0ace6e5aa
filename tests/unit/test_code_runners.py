"""The runners of code contexts, as programs of this host."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TextIO

import pytest

from sandbox_agent.code.channel import Channel
from sandbox_agent.code.javascript import JavaScriptEngine
from sandbox_agent.code.runner import Interrupts
from sandbox_agent.decide.code_frames import CHART_TYPE, CodeFrame, CodeFrames, encode
from tests.support.sources import ROOT

RUNNER = ROOT / "sandbox_agent/code"
NODE = pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node here")


class Runner:
    """A runner, whose cells are executed to their ends."""

    def __init__(self, program: "subprocess.Popen[bytes]") -> None:
        self._program = program
        self._frames = CodeFrames()
        self._read: list[CodeFrame] = []
        self._count = 0

    def upto(self, kind: str) -> list[CodeFrame]:
        """The frames to the next one of that kind."""
        found: list[CodeFrame] = []
        assert self._program.stdout is not None
        while not found or found[-1].kind != kind:
            if not self._read:
                data = os.read(self._program.stdout.fileno(), 65536)
                assert data, f"the runner has ended: {found}"
                self._read = self._frames.feed(data)
                continue
            found.append(self._read.pop(0))
        return found

    def run(self, code: str) -> dict[str, str]:
        """What came of a cell: output and parts by their names."""
        assert self._program.stdin is not None
        self._count += 1
        self._program.stdin.write(encode("run", code.encode(), f"c{self._count}"))
        self._program.stdin.flush()
        found: dict[str, str] = {}
        for frame in self.upto("end"):
            name = frame.name if frame.kind == "part" else frame.kind
            found[name] = found.get(name, "") + frame.data.decode()
        return found


@contextmanager
def running(language: str) -> Iterator[Runner]:
    command = [sys.executable, str(RUNNER), language]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        runner = Runner(program)
        runner.upto("ready")
        yield runner
        assert program.stdin is not None
        program.stdin.close()


@NODE
def test_javascript_keeps_names_and_awaits() -> None:
    with running("javascript") as runner:
        assert runner.run("let x = 5; console.log('hi'); x * 2")["text/plain"] == "10"
        shown = runner.run("const y = await Promise.resolve({a: [1, x]}); y")
        assert shown["application/json"] == '{"a":[1,5]}'
        raised = runner.run("throw new TypeError('bad')")
        assert (raised["name"], raised["message"]) == ("TypeError", "bad")
        assert "node:" not in raised["traceback"]
        displayed = runner.run("display(1)")  # which is no result, too
        assert (displayed["text/plain"], "result" in displayed) == ("1", False)
        assert runner.run("y.a.length")["text/plain"] == "2"


class _WithInterrupts:
    """Lines, with each of which an interrupt comes; the first one is the last one."""

    def __init__(self, lines: TextIO) -> None:
        self._lines: TextIO | None = lines

    def readline(self) -> str:
        """One line, after which the signal's handler runs."""
        lines, self._lines = self._lines, None
        assert lines is not None, "the line was lost"
        line = lines.readline()
        signal.raise_signal(signal.SIGINT)
        return line


@NODE
def test_an_interrupt_does_not_lose_what_javascript_tells_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = signal.getsignal(signal.SIGINT)
    reads, writes = os.pipe()
    engine = JavaScriptEngine(Channel(reads, writes))
    try:
        interrupts = Interrupts()
        with monkeypatch.context() as changed:
            changed.setattr(engine, "_lines", _WithInterrupts(engine._lines))
            interrupts.during(engine, partial(engine.run, "1 + 1", 1))
        assert not engine.over
    finally:
        signal.signal(signal.SIGINT, before)
        engine.close()
        os.close(reads)


def test_python_does_not_see_the_runner_among_its_imports() -> None:
    with running("python") as runner:
        found = runner.run("import sys; sys.path[0], __name__, sys.argv[1:]")
        assert found["text/plain"] == "('', '__main__', ['python'])"


def test_python_shows_figures_as_pictures_and_as_data() -> None:
    figures = """
import sys, types
class Line:
    def get_label(self): return "_child0"
    def get_xdata(self): return [1, 2]
    def get_ydata(self): return [3.0, float("nan")]
class Axes:
    containers = collections = patches = ()
    def __getattr__(self, name): return lambda: name
    def get_lines(self): return [Line()]
class Figure:
    axes = [Axes()]
    def savefig(self, file, **_more): file.write(b"\\x89PNG")
module = sys.modules["matplotlib.figure"] = types.ModuleType("matplotlib.figure")
module.Figure = Figure
Figure()
"""
    with running("python") as runner:
        found = runner.run(figures)
        assert found["image/png"] == "iVBORw=="
        assert '"x": [1, 2], "y": [3.0, null]' in found[CHART_TYPE]
