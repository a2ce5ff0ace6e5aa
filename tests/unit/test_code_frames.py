"""The frames of code contexts, however they are split, and the bounds of a cell."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.work.code.cell import Cell, CellText, Value
from sandbox_agent.decide import code_frames
from sandbox_agent.decide.code_frames import CodeFrame, CodeFrameError, CodeFrames, encode

FRAMES = st.lists(
    st.builds(
        CodeFrame,
        st.sampled_from(["out", "part", "end"]),
        st.sampled_from(["-", "text/plain", "0123456789abcdef"]),
        st.binary(max_size=50),
    ),
    max_size=10,
)


@given(frames=FRAMES, size=st.integers(1, 20))
def test_frames_survive_any_split(frames: list[CodeFrame], size: int) -> None:
    data = b"".join(encode(frame.kind, frame.data, frame.name) for frame in frames)
    reader = CodeFrames()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert [frame for piece in pieces for frame in reader.feed(piece)] == frames


@given(data=st.binary(max_size=400))
def test_any_bytes_are_frames_or_refused(data: bytes) -> None:
    reader = CodeFrames()
    try:
        found = reader.feed(data)
    except CodeFrameError:
        return
    assert sum(len(frame.data) for frame in found) <= len(data)


@pytest.mark.parametrize(
    "data", [b"out - 4194305\n", b"x" * 160, b"out -\n", b"out - -1\n", b"OUT - 1\n", b"\n"]
)
def test_wrong_headers_are_refused(data: bytes) -> None:
    with pytest.raises(CodeFrameError):
        CodeFrames().feed(data)


def make() -> Cell:
    loop = asyncio.get_running_loop()
    return Cell("c1", "python", "python", "cmd", False, loop.create_future(), loop.create_future())


async def test_what_is_printed_is_bounded_in_bytes_and_pieces() -> None:
    cell = make()
    for _ in range(6):
        cell.take(CodeFrame("out", "-", b"x" * 256 * 1024))
    assert sum(len(each.text) for each in cell.events if isinstance(each, CellText)) == (
        code_frames.MOST_PRINTED_BYTES
    )
    assert cell.cut_bytes == 512 * 1024
    crowded = make()
    for _ in range(20_000):
        crowded.take(CodeFrame("err", "-", b"x"))
    assert (len(crowded.events), crowded.cut_bytes) == (10_000, 10_000)


async def test_values_are_bounded_in_number_and_size() -> None:
    cell = make()
    for _ in range(code_frames.MOST_VALUES + 5):
        cell.take(CodeFrame("part", "text/plain", b"1"))
        cell.take(CodeFrame("result", "-", b""))
    assert (len(cell.events), cell.cut_bytes) == (code_frames.MOST_VALUES, 5)
    large = make()
    for _ in range(3):
        large.take(CodeFrame("part", "text/plain", b"x" * code_frames.MOST_FRAME_BYTES))
        large.take(CodeFrame("display", "-", b""))
    assert (len(large.events), large.cut_bytes) == (1, 2 * code_frames.MOST_FRAME_BYTES)
    for _ in range(code_frames.MOST_PARTS):
        cell.take(CodeFrame("part", "text/plain", b""))
    with pytest.raises(CodeFrameError):
        cell.take(CodeFrame("part", "text/plain", b""))


async def test_json_is_read_within_bounds_and_unknown_types_are_text() -> None:
    cell = make()
    parts = {
        "application/json": b'{"a": [1]}',
        code_frames.TABLE_TYPE: b"[" * 100_000,
        code_frames.CHART_TYPE: b'"' + b"x" * code_frames.MOST_JSON_BYTES + b'"',
        "text/x-new": b"\xff",
    }
    for name, data in parts.items():
        cell.take(CodeFrame("part", name, data))
    cell.take(CodeFrame("result", "-", b""))
    (value,) = cell.events
    assert isinstance(value, Value)
    assert value.parts == {
        "application/json": {"a": [1]},
        "text/x-new": "\N{REPLACEMENT CHARACTER}",
    }
