"""A command's output: bounded, complete where it can be, readable from any offset."""

from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.output import STDERR, STDOUT, Output

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
    assert not output.truncated


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
    assert output.truncated == (len(kept) < len(everything))
    assert everything.endswith(kept) if keep_tail else everything.startswith(kept)
    for _, offset, data in pieces:
        assert everything[offset : offset + len(data)] == data


def test_alternating_single_bytes_stay_within_a_small_multiple_of_the_limit() -> None:
    output = Output(100_000, keep_tail=False)
    for number in range(50_000):
        output.add(STDOUT if number % 2 else STDERR, b"x")
    chunks, _ = output.read(0, 10**6)
    assert len(chunks) < 1000
    assert output.total == 50_000
    assert output.truncated


def test_reading_past_the_end_waits_there() -> None:
    output = Output(10, keep_tail=True)
    output.add(STDOUT, b"abc")
    assert output.read(3, 10) == ([], 3)
