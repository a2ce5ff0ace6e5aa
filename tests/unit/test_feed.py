"""A command's standard input: bounded, in order, and no caller waits forever."""

import os
from collections.abc import Iterator

import pytest

from sandbox_agent.core.loop import READ, Loop
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.run import feed
from sandbox_agent.run.feed import MOST_BYTES, Feed


class Told(list[str | None]):
    """The error codes that feeders received; None for accepted input."""

    def __call__(self, error: AgentError | None) -> None:
        self.append(error.code if error else None)


class Command:
    """A command that reads its input while the loop runs."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.read, self.write = os.pipe()
        self.data = b""

    def read_to(self, count: int | None) -> bytes:
        """Reads `count` bytes, or with None to the end of the input."""
        self.loop._stopped = False
        if count is not None and len(self.data) >= count:
            return self.data

        def on_ready(_events: int) -> None:
            data = os.read(self.read, 65536)
            self.data += data
            if not data or (count is not None and len(self.data) >= count):
                self.loop.unwatch(self.read)
                self.loop.stop()

        self.loop.watch(self.read, READ, on_ready)
        self.loop.run()
        return self.data

    def close(self) -> None:
        """Stops reading."""
        if self.read >= 0:
            os.close(self.read)
            self.read = -1


@pytest.fixture
def command() -> Iterator[Command]:
    command = Command(Loop())
    yield command
    command.close()


def test_what_is_there_is_written_and_ended(command: Command) -> None:
    Feed(command.loop, command.write, b"all \xff", stays_open=False)
    assert command.read_to(None) == b"all \xff"


def test_input_waits_until_there_is_room(command: Command) -> None:
    source, told = Feed(command.loop, command.write, b"0" * MOST_BYTES, stays_open=True), Told()
    source.write(b"1" * MOST_BYTES, False, told)
    assert told == []
    source.write(b"2", False, told)
    assert told == ["busy"]
    command.read_to(MOST_BYTES + 1)
    assert told == ["busy", None]
    source.write(b"", True, told)
    assert command.read_to(None) == b"0" * MOST_BYTES + b"1" * MOST_BYTES
    assert told == ["busy", None, None]
    source.write(b"late", False, told)
    assert told[-1] == "conflict"


def test_the_last_input_may_wait_as_well(command: Command) -> None:
    source, told = Feed(command.loop, command.write, b"0" * MOST_BYTES, stays_open=True), Told()
    source.write(b"1" * MOST_BYTES, True, told)
    assert len(command.read_to(None)) == 2 * MOST_BYTES
    assert told == [None]


def test_nobody_waits_for_ever(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "PATIENCE_SECONDS", 0.0)
    source = Feed(command.loop, command.write, b"0" * MOST_BYTES, stays_open=True)
    told: list[str] = []

    def done(error: AgentError | None) -> None:
        assert error is not None
        told.append(f"{error.code}: {error.message}")
        command.loop.stop()

    source.write(b"1" * MOST_BYTES, False, done)
    command.loop.run()
    assert told == ["busy: the command has not read its standard input for 0 s: try again"]
    source.close()
    assert command.read_to(None).strip(b"0") == b""


@pytest.mark.parametrize("way", ["reader", "end"])
def test_who_waits_hears_of_the_end(command: Command, way: str) -> None:
    source, told = Feed(command.loop, command.write, b"0" * MOST_BYTES, stays_open=True), Told()

    def done(error: AgentError | None) -> None:
        told(error)
        command.loop.stop()

    source.write(b"1" * MOST_BYTES, False, done)
    if way == "reader":
        command.close()
        command.loop.run()
    else:
        source.close()
    assert told == ["conflict"]


def test_a_caller_that_is_gone_is_not_answered(command: Command) -> None:
    source, told = Feed(command.loop, command.write, b"0" * MOST_BYTES, stays_open=True), Told()
    source.write(b"1" * MOST_BYTES, False, told)
    source.forget_caller()
    source.write(b"2" * MOST_BYTES, False, told)
    source.forget_caller()
    command.read_to(MOST_BYTES)
    source.write(b"3", True, told)
    assert command.read_to(None) == b"0" * MOST_BYTES + b"3"
    assert told == [None]
