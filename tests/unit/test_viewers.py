"""Viewers: each sees everything, or is told how much it lost; nobody waits for anybody."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ground.errors import BusyError
from orchestrator.work.terminals import viewers as module
from orchestrator.work.terminals.pages import Exit
from orchestrator.work.terminals.viewers import (
    HELD_BYTES,
    MOST_BEHIND_BYTES,
    MOST_VIEWERS,
    EndShown,
    LossShown,
    Size,
    Viewer,
    Viewers,
)

END = EndShown(Exit(0, None, None), "exited")


async def rest(viewer: Viewer) -> tuple[bytes, int]:
    """What is shown until the end, and how much is missing."""
    said, lost = b"", 0
    while not isinstance(shown := await viewer.next(), EndShown):
        if isinstance(shown, bytes):
            said += shown
        elif isinstance(shown, LossShown):
            lost += shown.bytes
    return said, lost


@given(st.lists(st.integers(0, 3 * 64 * 1024), max_size=30))
async def test_what_is_shown_and_what_is_lost_is_everything(sizes: list[int]) -> None:
    viewers = Viewers(Size(80, 24))
    viewer = viewers.join()
    printed = bytes(index % 251 for index in range(sum(sizes)))
    start = 0
    for size in sizes:
        viewers.show(printed[start : start + size])
        start += size
    viewers.end(END)
    said, lost = await rest(viewer)
    assert len(said) + lost == len(printed)
    assert printed.endswith(said)
    assert len(said) <= MOST_BEHIND_BYTES
    assert lost == 0 or len(printed) > MOST_BEHIND_BYTES


async def test_a_new_viewer_gets_what_is_held_and_the_end() -> None:
    viewers = Viewers(Size(80, 24))
    viewers.show(b"a" * HELD_BYTES)
    viewers.show(b"b" * 10)
    viewers.end(END)
    said, lost = await rest(viewers.join())
    assert (said, lost) == (b"a" * (HELD_BYTES - 10) + b"b" * 10, 0)


async def test_a_change_of_size_is_told_to_all() -> None:
    viewers = Viewers(Size(80, 24))
    first, second = viewers.join(), viewers.join()
    viewers.leave(second)
    viewers.resize(Size(100, 30))
    assert await first.next() == Size(100, 30)
    assert viewers.size == Size(100, 30)
    assert len(viewers) == 1


async def test_viewers_are_counted() -> None:
    viewers = Viewers(Size(80, 24))
    joined = [viewers.join() for _ in range(MOST_VIEWERS)]
    with pytest.raises(BusyError):
        viewers.join()
    viewers.leave(joined[0])
    viewers.leave(joined[0])
    viewers.join()


async def test_a_viewer_that_does_not_read_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BEHIND_BYTES", 100)
    monkeypatch.setattr(module, "_KEPT_BYTES", 40)
    viewer = Viewer(b"")
    for _ in range(50):
        viewer.add(b"x" * 30)
        assert len(viewer._output) <= 100
    viewer.end(END)
    said, lost = await rest(viewer)
    assert len(said) + lost == 1500
