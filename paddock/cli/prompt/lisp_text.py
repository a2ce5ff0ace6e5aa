"""Finds where the forms of a program end, as a person types it. The server reads them."""

import re
from collections.abc import Iterator

# The tokens of the server's reader.
_TOKEN = re.compile(
    r"""(?P<space>\s+|;[^\n]*)
    | (?P<comment>\#\|)
    | (?P<text>"[^"\\]*+(?:\\.[^"\\]*+)*+"|\|[^|\\]*+(?:\\.[^|\\]*+)*+\|)
    | (?P<opening>\#outcome\(|\()
    | (?P<closing>\))
    | (?P<quote>,@|['`,])
    | (?P<atom>[^\s()'`,;"|]+)""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"\#\||\|\#")


class TypedForms:
    """Takes lines and gives forms, also wrong ones: the server says what is wrong."""

    def __init__(self) -> None:
        self._text = ""
        # The end of what was read, the start of the open form, and the number of its open lists.
        self._at = 0
        self._start: int | None = None
        self._depth = 0

    @property
    def unfinished(self) -> bool:
        """Whether a form or a comment has begun and not ended."""
        return self._start is not None or self._at < len(self._text)

    def feed(self, line: str) -> list[str]:
        """The forms that end with this line."""
        self._text += line if line.endswith("\n") else f"{line}\n"
        forms = list(self._complete())
        kept = self._at if self._start is None else self._start
        self._text, self._at = self._text[kept:], self._at - kept
        self._start = None if self._start is None else 0
        return forms

    def _complete(self) -> Iterator[str]:
        while self._at < len(self._text):
            found = _TOKEN.match(self._text, self._at)
            kind = "" if found is None else found.lastgroup or ""
            if kind == "comment":
                end = _comment_end(self._text, self._at)
            else:
                end = None if found is None else found.end()
            if self._start is None and kind not in ("space", "comment"):
                self._start = self._at
            if end is None:
                return
            self._at = end
            self._depth += (kind == "opening") - (kind == "closing")
            if self._start is None or kind in ("space", "comment", "quote") or self._depth > 0:
                continue
            yield self._text[self._start : end]
            self._start, self._depth = None, 0


def _comment_end(text: str, at: int) -> int | None:
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, at):
        depth += 1 if edge[0] == "#|" else -1
        if depth == 0:
            return edge.end()
    return None
