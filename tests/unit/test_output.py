"""A command's output: bounded, complete if possible, readable from any offset."""

import base64
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.host.link.frames import bounds, parse_frame
from sandbox_agent.core.output import STDERR, STDOUT, Output
from sandbox_agent.decide.frames import encode, result
from sandbox_agent.decide.protocol import CHUNK_BYTES

WRITES = st.lists(
    st.tuples(st.sampled_from([STDOUT, STDERR]), st.binary(max_size=300)), max_size=60
)


def _all(writes: list[tuple[str, bytes]]) -> bytes:
    return b"".join(data for _, data in writes)


def _read_all(output: Output, after: int, limit: int) -> list[tuple[str, int, bytes]]:
    pieces = []
    while True:
        chunks, position = output.read(after, limit)
        pieces += [(chunk.stream, chunk.offset, bytes(chunk.data)) for chunk in chunks]
        if position == after:
            return pieces
        after = position


@given(WRITES, st.integers(1, 200))
def test_pages_of_any_size_give_everything_back(writes: list[tuple[str, bytes]], page: int) -> None:
    output = Output(10**6, keep_tail=False)
    for stream, data in writes:
        output.add(stream, data)
    pieces = _read_all(output, 0, page)
    assert b"".join(data for _, _, data in pieces) == _all(writes)
    for name in (STDOUT, STDERR):
        expected = b"".join(data for stream, data in writes if stream == name)
        assert b"".join(data for stream, _, data in pieces if stream == name) == expected
    assert output.cut == 0


@given(WRITES, st.integers(0, 5000), st.booleans())
def test_the_limit_holds_and_all_is_counted(
    writes: list[tuple[str, bytes]], limit: int, keep_tail: bool
) -> None:
    output = Output(limit, keep_tail)
    for stream, data in writes:
        output.add(stream, data)
    everything = _all(writes)
    pieces = _read_all(output, 0, 10**6)
    kept = b"".join(data for _, _, data in pieces)
    assert output.total == len(everything)
    assert len(kept) == output.kept <= max(limit, 0)
    assert output.cut == len(everything) - len(kept)
    if keep_tail:
        assert everything.endswith(kept)
    # The kept output has one gap at most.
    gaps = [
        (offset + len(data), after)
        for (_, offset, data), (_, after, _) in itertools.pairwise(pieces)
        if offset + len(data) != after
    ]
    assert len(gaps) <= (0 if keep_tail else 1)
    assert everything.endswith(pieces[-1][2] if pieces else b"")
    for _, offset, data in pieces:
        assert everything[offset : offset + len(data)] == data


def test_alternating_single_bytes_stay_within_a_small_multiple_of_the_limit() -> None:
    output = Output(100_000, keep_tail=False)
    for number in range(50_000):
        output.add(STDOUT if number % 2 else STDERR, b"x")
    chunks, _ = output.read(0, 10**6)
    assert len(chunks) < 1000
    assert output.total == 50_000
    assert output.cut > 0


def test_the_first_and_the_last_are_kept_half_each() -> None:
    output = Output(20_000, keep_tail=False)
    text = b"".join(b"%07d\n" % number for number in range(10_000))
    for start in range(0, len(text), 1000):
        output.add(STDOUT, text[start : start + 1000])
    pieces = _read_all(output, 0, 4096)
    kept = b"".join(data for _, _, data in pieces)
    assert 19_000 < len(kept) <= 20_000
    assert (text[:9_500], text[-9_500:]) == (kept[:9_500], kept[-9_500:])
    assert output.cut == len(text) - len(kept)
    # A read at an offset within the gap continues after the gap.
    (chunk, *_), _ = output.read(40_000, 10)
    assert chunk.offset == len(text) - output._tail.size


def test_what_fits_is_whole() -> None:
    output = Output(10_000, keep_tail=False)
    output.add(STDOUT, b"a" * 9_000)
    assert (output.cut, output.kept) == (0, 9_000)


def test_reading_past_the_end_waits_there() -> None:
    output = Output(10, keep_tail=True)
    output.add(STDOUT, b"abc")
    assert output.read(3, 10) == ([], 3)


@pytest.mark.slow
def test_a_page_of_single_bytes_is_a_message_that_the_control_plane_reads() -> None:
    output = Output(4 * 1024 * 1024, keep_tail=False)
    for number in range(40_000):
        output.add((STDOUT, STDERR)[number % 2], b"x")
    position, found = 0, 0
    while position < output.total:
        chunks, following = output.read(position, CHUNK_BYTES)
        page = [[c.stream, c.offset, base64.b64encode(c.data).decode()] for c in chunks]
        answer = result(1, {"chunks": page, "next": following, "ended": True})
        assert parse_frame(encode(answer)[4:], bounds(True, ["output"])) == answer
        assert following > position
        position, found = following, found + sum(len(c.data) for c in chunks)
    assert found == output.kept
