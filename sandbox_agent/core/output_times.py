"""When a command printed what: the times of its output, by offset, within a bounded size. Pure."""

from array import array
from bisect import bisect_left, bisect_right

# Output that follows within this time of a known one has its time.
_SECONDS = 0.01
# When so many times are known, every second one is forgotten: of long output they become coarser.
_MOST = 1024


class OutputTimes:
    """Times in seconds since the epoch, each of the output from an offset on."""

    def __init__(self) -> None:
        self._offsets = array("Q")
        self._times = array("d")
        self._seconds = _SECONDS

    def add(self, offset: int, now: float) -> None:
        """Output from that offset on was read now. A clock that was set back does not go back."""
        if self._times:
            now = max(now, self._times[-1])
            if now - self._times[-1] < self._seconds:
                return
        self._offsets.append(offset)
        self._times.append(now)
        if len(self._times) >= _MOST:
            del self._offsets[1::2], self._times[1::2]
            self._seconds *= 2

    def pieces(self, offset: int, size: int) -> list[tuple[int, int, float | None]]:
        """The parts of `size` bytes from an offset on that have one time each: start, end, time.

        The time is None of what was read before this object existed.
        """
        first = bisect_right(self._offsets, offset) - 1
        last = bisect_left(self._offsets, offset + size)
        starts = [offset, *self._offsets[first + 1 : last]]
        ends = [*starts[1:], offset + size]
        times = [None if first < 0 else self._times[first], *self._times[first + 1 : last]]
        return list(zip(starts, ends, times, strict=True))
