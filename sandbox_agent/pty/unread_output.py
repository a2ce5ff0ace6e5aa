"""Output of a terminal that no one has read yet: lossless and bounded."""

# Above this size the terminal is not read, and a program that writes to it waits.
MOST_BYTES = 256 * 1024


class UnreadOutput:
    """The output from offset `start` to `total`."""

    def __init__(self) -> None:
        self._data = bytearray()
        self.start = 0

    @property
    def total(self) -> int:
        """Bytes printed so far."""
        return self.start + len(self._data)

    @property
    def room(self) -> int:
        """Bytes that may still be added."""
        return max(0, MOST_BYTES - len(self._data))

    def add(self, data: bytes) -> None:
        """Adds output."""
        self._data += data

    def take(self, after: int, limit: int) -> bytes:
        """Returns bytes from `after` on; earlier bytes count as received and are dropped.

        The same offset can be requested again, as after a lost answer. Raises: ValueError for an
        offset before `start` or after `total`.
        """
        if not self.start <= after <= self.total:
            raise ValueError(f"after must be between {self.start} and {self.total}")
        del self._data[: after - self.start]
        self.start = after
        return bytes(self._data[:limit])
