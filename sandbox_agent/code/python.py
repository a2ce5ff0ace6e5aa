"""Python without a kernel: cells are executed in this process."""

import ast
import asyncio
import builtins
import inspect
import linecache
import os
import platform
import sys
import traceback
import types
import warnings
from types import CodeType
from typing import Any

from sandbox_agent.code import figures
from sandbox_agent.code.channel import Channel, shortened
from sandbox_agent.code.values import parts_of

_HERE = os.path.dirname(__file__)
_FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


class PythonEngine:
    """Executes Python in a module `__main__` of its own."""

    over = False

    def __init__(self, channel: Channel) -> None:
        self.kernel = f"python-{platform.python_version()}"
        self._channel = channel
        self._loop: asyncio.AbstractEventLoop | None = None
        # A cell ends in a `main` of its own, whose names are found by pickle, too.
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        self._names = main.__dict__
        self._names.update(__builtins__=builtins, display=self._display)
        # Figures are drawn for files, and sent at the end of a cell instead of by `show`.
        os.environ.setdefault("MPLBACKEND", "Agg")
        warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive")

    def run(self, code: str, count: int) -> None:
        """Executes one cell."""
        name = f"<cell {count}>"
        linecache.cache[name] = len(code), None, code.splitlines(keepends=True), name
        try:
            self._execute(code, name)
            self._show_figures()
        # SystemExit and KeyboardInterrupt, too, end only the cell.
        except BaseException as error:  # noqa: BLE001
            self._channel.value("error", _described(error))
            figures.close_all()

    def interrupt(self) -> None:
        """Raises KeyboardInterrupt in the cell."""
        raise KeyboardInterrupt

    def close(self) -> None:
        """Ends the event loop of cells that await."""
        if self._loop is not None:
            self._loop.close()

    def _execute(self, code: str, name: str) -> None:
        tree = ast.parse(code, name)
        last = tree.body[-1] if tree.body else None
        if not isinstance(last, ast.Expr):
            self._evaluate(compile(tree, name, "exec", _FLAGS))
            return
        tree.body.pop()
        self._evaluate(compile(tree, name, "exec", _FLAGS))
        value = self._evaluate(compile(ast.Expression(last.value), name, "eval", _FLAGS))
        if value is not None and not code.rstrip().endswith(";"):
            self._names["_"] = value
            self._channel.value("result", parts_of(value))

    def _evaluate(self, compiled: CodeType) -> Any:
        value = eval(compiled, self._names)  # noqa: S307 - that is what this program is for
        if not compiled.co_flags & inspect.CO_COROUTINE:
            return value
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
        return self._loop.run_until_complete(value)

    def _display(self, *values: object) -> None:
        for value in values:
            self._channel.value("display", parts_of(value))

    def _show_figures(self) -> None:
        for parts in figures.open_figures():
            self._channel.value("display", parts)


def _described(error: BaseException) -> dict[str, str]:
    """An exception's name, message and traceback, without the frames of this program."""
    found = traceback.TracebackException.from_exception(error)
    shown = [each for each in found.stack if not each.filename.startswith(_HERE)]
    found.stack = traceback.StackSummary.from_list(shown)
    return {
        "name": type(error).__name__,
        "message": shortened(_text(error)),
        "traceback": shortened("".join(found.format())),
    }


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 - an exception's own code can do anything
        return f"<the message can't be shown: {type(failure).__name__}>"
