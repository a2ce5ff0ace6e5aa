"""Which files were written through `/files`: E2B's clients expect other events of them."""

from collections import OrderedDict

_MOST = 4096


class Uploads:
    """The latest uploads, by the session's key and the absolute path, each with a number."""

    def __init__(self) -> None:
        self._found: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._count = 0

    def begin(self, session_key: str, path: str) -> None:
        """A file is about to be written, or written again."""
        self._count += 1
        self._found.pop((session_key, path), None)
        self._found[session_key, path] = self._count
        if len(self._found) > _MOST:
            self._found.popitem(last=False)

    def number(self, session_key: str, path: str) -> int:
        """The number of the latest upload to the path; 0: there was none."""
        return self._found.get((session_key, path), 0)
