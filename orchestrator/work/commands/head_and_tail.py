"""The first and the last bytes of what comes in pieces. Pure."""


class HeadAndTail:
    """Keeps at most so many bytes, half of them from each end, and counts what is between."""

    def __init__(self, most: int) -> None:
        self._half = most // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.cut = 0

    def add(self, data: bytes) -> None:
        """Adds a piece."""
        room = 0 if self.cut else self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._half:
            self._shorten()

    def skip(self, count: int) -> None:
        """Notes that so many bytes are missing between two pieces."""
        self.cut += max(0, count)

    @property
    def text(self) -> str:
        """What is kept, with a line where something is missing."""
        self._shorten()
        head, tail = (bytes(each).decode("utf-8", "replace") for each in (self._head, self._tail))
        if not self.cut:
            return bytes(self._head + self._tail).decode("utf-8", "replace")
        return f"{head}\n[{self.cut} bytes are left out here]\n{tail}"

    def _shorten(self) -> None:
        if (over := len(self._tail) - self._half) > 0:
            self.cut += over
            del self._tail[:over]
