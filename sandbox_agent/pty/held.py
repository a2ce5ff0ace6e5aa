"""What a terminal has said and nobody has taken yet: lossless, and bounded."""

# Beyond this the terminal is not read, and whoever writes to it waits.
HELD_BYTES = 256 * 1024


class Held:
    """Bytes from offset `start` to `end` of everything that was said."""

    def __init__(self) -> None:
        self._data = bytearray()
        self.start = 0

    @property
    def total(self) -> int:
        """How many bytes were said so far."""
        return self.start + len(self._data)

    @property
    def room(self) -> int:
        """How many more may be held."""
        return max(0, HELD_BYTES - len(self._data))

    def add(self, data: bytes) -> None:
        """More was said."""
        self._data += data

    def take(self, after: int, limit: int) -> bytes:
        """Bytes from `after` on; what is before was received, and is dropped.

        The same place can be asked for again, as after a lost answer. Raises: ValueError for
        places that are not held.
        """
        if not self.start <= after <= self.total:
            raise ValueError(f"after must be between {self.start} and {self.total}")
        del self._data[: after - self.start]
        self.start = after
        return bytes(self._data[:limit])
