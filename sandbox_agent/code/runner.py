"""The runner: takes one cell after the other, and has the engine of its language execute it."""

import os
import signal
from collections.abc import Callable
from functools import partial
from types import FrameType

from sandbox_agent.code.channel import Channel
from sandbox_agent.code.engine import Engine, NoSuchLanguageError, engine_of
from sandbox_agent.code.streams import Streams


def main(arguments: list[str]) -> int:
    """Serves until its input ends; returns the exit code."""
    channel = Channel(_own(0), _own(1))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    streams = Streams(channel.send)
    channel.flush = streams.drain
    interrupts = Interrupts()
    try:
        engine = engine_of(arguments[0], channel)
    except NoSuchLanguageError as error:
        channel.send("no", " ".join(error.known).encode())
        channel.end("-", 0)
        return 1
    streams.drain()
    channel.send("ready", name=engine.kernel)
    count = 0
    while (cell := channel.take()) is not None:
        count += 1
        interrupts.during(engine, partial(engine.run, cell.data.decode(), count))
        streams.drain()
        if engine.over:  # the cell has no end but that of this program
            channel.flushed()
            break
        channel.end(cell.name, count)
    engine.close()
    return 0


class Interrupts:
    """SIGINT interrupts a cell once, and nothing else."""

    def __init__(self) -> None:
        self._running: Engine | None = None
        signal.signal(signal.SIGINT, self._interrupt)

    def during(self, engine: Engine, work: Callable[[], None]) -> None:
        """Does the engine's work, which can be interrupted."""
        try:
            self._running = engine
            work()
        except KeyboardInterrupt:
            pass  # it came after the engine had reported the end
        finally:
            self._running = None

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        engine, self._running = self._running, None
        if engine is not None:
            engine.interrupt()


def _own(descriptor: int) -> int:
    """A copy that child processes do not have, and that cells do not use by accident."""
    return os.dup(descriptor)
