"""When a command printed what: exact for short output, coarser for long, always bounded."""

from itertools import count, pairwise

from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.core.output import Output
from sandbox_agent.core.output_times import OutputTimes
from sandbox_agent.decide.protocol import MOST_CHUNKS


def test_output_is_divided_where_its_times_differ() -> None:
    times = OutputTimes()
    for offset, now in ((0, 1.0), (5, 1.005), (9, 2.0), (20, 1.5), (30, 3.0)):
        times.add(offset, now)
    # What follows within 10 ms has the same time, and a clock that was set back does not go back.
    assert times.pieces(0, 40) == [(0, 9, 1.0), (9, 30, 2.0), (30, 40, 3.0)]
    assert times.pieces(6, 3) == [(6, 9, 1.0)]
    assert times.pieces(10, 5) == [(10, 15, 2.0)]
    assert OutputTimes().pieces(3, 4) == [(3, 7, None)]


@given(
    st.lists(st.tuples(st.integers(1, 50), st.floats(0, 0.1)), max_size=60),
    st.integers(0, 500),
    st.integers(1, 2000),
)
def test_pieces_cover_the_output_in_order(
    printed: list[tuple[int, float]], offset: int, size: int
) -> None:
    times, at, now = OutputTimes(), 0, 1000.0
    for length, pause in printed:
        now += pause
        times.add(at, now)
        at += length
    pieces = times.pieces(offset, size)
    assert (pieces[0][0], pieces[-1][1]) == (offset, offset + size)
    assert all(before[1] == after[0] for before, after in pairwise(pieces))
    assert all(start < end for start, end, _ in pieces)
    told = [when for *_, when in pieces]
    assert told == ([None] * len(pieces) if not printed else sorted(told))  # type: ignore[type-var]


def test_long_output_keeps_few_times() -> None:
    times = OutputTimes()
    for number in range(100_000):
        times.add(number, float(number))
    pieces = times.pieces(0, 100_000)
    assert 256 <= len(pieces) <= 1024
    assert all(when is not None and when <= start for start, _, when in pieces)


def test_a_page_never_has_more_chunks_than_an_answer_may() -> None:
    seconds = map(float, count())
    output = Output(64 * 1024 * 1024, keep_tail=False, clock=lambda: next(seconds))
    for number in range(6000):
        output.add(("stdout", "stderr")[number % 2], b"x" * 20)
    chunks, _ = output.read(0, 256 * 1024)
    timed = output.timed(chunks)
    assert len(timed) <= MOST_CHUNKS
    assert b"".join(data for (_, _, data), _ in timed) == b"".join(data for _, _, data in chunks)
