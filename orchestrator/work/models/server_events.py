"""Server-sent events, read from bytes as they come: linear, whatever their pieces are. Pure."""

from collections.abc import Iterator

from orchestrator.work.models.errors import ModelError, ModelFailure

# Bytes of one line, and of the data of one event.
MOST_LINE = 2 * 1024 * 1024


class EventReader:
    """The data of each event; the other fields are not used by endpoints of models."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The data of events that are complete with this piece. Raises: ModelError."""
        end = max(piece.rfind(b"\n"), piece.rfind(b"\r")) + 1
        if not end:
            self._line += piece
            _check(len(self._line))
            return
        self._line += piece[:end]
        _check(len(self._line))
        lines, self._line = bytes(self._line).splitlines(), bytearray(piece[end:])
        for line in lines:
            if not line:
                yield from self.rest()
            else:
                self._take(line)

    def rest(self) -> Iterator[bytes]:
        """The data that has come since the latest event."""
        if self._data:
            yield b"\n".join(self._data)
            self._data.clear()
            self._size = 0

    def end(self) -> Iterator[bytes]:
        """The data of an event that nothing has ended."""
        if self._line:
            self._take(bytes(self._line))
            self._line.clear()
        yield from self.rest()

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
            self._size += len(value) + 1
            _check(self._size)


def _check(size: int) -> None:
    if size > MOST_LINE:
        raise ModelError(ModelFailure.TOO_LARGE, "the endpoint sends more than an answer has")
