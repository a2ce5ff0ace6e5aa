"""Long output in unnamed memory: complete up to a limit, without delaying anything."""

import errno
import os
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.core.output import STDERR, STDOUT, Output, Room, StoredOutput
from sandbox_agent.decide.protocol import MOST_CHUNKS, MOST_STORED
from tests.unit.test_output import WRITES

MIB = 2**20


def _read(output: Output, page: int) -> list[tuple[str, int, bytes]]:
    pieces, after = [], 0
    while True:
        chunks, position = output.read(after, page, whole=True)
        assert sum(len(chunk.data) for chunk in chunks) <= page
        assert len(chunks) <= MOST_CHUNKS
        pieces += [(chunk.stream, chunk.offset, bytes(chunk.data)) for chunk in chunks]
        if position == after:
            return pieces
        after = position


@pytest.fixture
def room() -> Room:
    return Room(64 * MIB)


@given(WRITES, st.integers(0, 2000), st.integers(1, 700), st.booleans(), st.booleans())
def test_all_that_was_printed_is_read_whole(
    writes: list[tuple[str, bytes]], limit: int, page: int, keep_tail: bool, forgotten: bool
) -> None:
    stored = StoredOutput(Room(64 * MIB))
    output = Output(limit, keep_tail, stored)
    for stream, data in writes:
        output.add(stream, data)
    if forgotten and output.cut:
        output.forget()
    pieces = _read(output, page)
    everything = b"".join(data for _, data in writes)
    assert b"".join(data for _, _, data in pieces) == everything
    for name in (STDOUT, STDERR):
        expected = b"".join(data for stream, data in writes if stream == name)
        assert b"".join(data for stream, _, data in pieces if stream == name) == expected
    assert all(everything[start : start + len(data)] == data for _, start, data in pieces)
    stored.close()


def test_output_that_is_not_long_takes_no_room(room: Room) -> None:
    before = room.left
    output = Output(10_000, keep_tail=False, stored=StoredOutput(room))
    output.add(STDOUT, b"a" * 9_000)
    assert (output.stored, room.left) == (0, before)


def test_a_command_stores_the_beginning_up_to_its_limit(room: Room) -> None:
    stored = StoredOutput(room)
    output = Output(10_000, keep_tail=False, stored=stored)
    text = b"".join(b"%07d\n" % number for number in range(room.most // 4))
    for start in range(0, len(text), 65_536):
        output.add(STDOUT, text[start : start + 65_536])
    assert room.most - 100 < output.stored <= room.most
    pieces = _read(output, MIB)
    kept = b"".join(data for _, _, data in pieces)
    assert kept[: output.stored] == text[: output.stored]
    # The end of the output is also kept while the command is one of the latest.
    assert text.endswith(kept[output.stored :])
    assert len(kept) > output.stored
    stored.close()


def test_the_room_is_shared(room: Room) -> None:
    most, outputs = room.left, [StoredOutput(room) for _ in range(6)]
    for stored in outputs:
        stored.add(STDOUT, b"x" * room.most)
    assert most - 1000 < sum(stored.size for stored in outputs) <= most
    assert [stored.size > 0 for stored in outputs] == [True] * 4 + [False] * 2
    for stored in outputs:
        stored.close()


def test_the_number_of_files_is_bounded(room: Room) -> None:
    outputs = [StoredOutput(room) for _ in range(MOST_STORED + 1)]
    for stored in outputs:
        stored.add(STDOUT, b"x")
    assert [stored.size for stored in outputs] == [1] * MOST_STORED + [0]
    for stored in outputs:
        stored.close()


@pytest.mark.slow
def test_alternating_single_bytes_cost_more(room: Room) -> None:
    stored = StoredOutput(room)
    for number in range(room.most // 8):
        stored.add(STDOUT if number % 2 else STDERR, b"x")
    assert stored.size <= room.most // 16
    chunks = stored.read(0, MIB, MOST_CHUNKS)
    assert len(chunks) == MOST_CHUNKS
    assert {chunk.stream for chunk in chunks[::2]} == {STDERR}
    stored.close()


def _fail(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("name", ["memfd_create", "write"])
def test_where_memory_is_short_it_is_told_and_nothing_fails(
    monkeypatch: pytest.MonkeyPatch, room: Room, name: str
) -> None:
    stored = StoredOutput(room)
    output = Output(1000, keep_tail=False, stored=stored)
    real: Callable[..., int] = getattr(os, name)
    monkeypatch.setattr(os, name, _fail)
    output.add(STDOUT, b"x" * 5000)
    monkeypatch.setattr(os, name, real)
    # Later output is not stored, because it would not be the beginning.
    output.add(STDOUT, b"y" * 5000)
    assert (output.stored, output.total) == (0, 10_000)
    assert output.cut > 8000
    stored.close()
