r"""Names of files that are not UTF-8: as lists have them, and as `os.fsdecode` returns them. Pure.

In lists and requests, a byte that is not UTF-8 is an escape such as `\xff`, and a backslash that
would be read as one is `\x5c`. In this program, `open` and `Path` take what `os.fsdecode` returns.
"""

import re

_ESCAPE = re.compile(r"\\x(5c|[89a-f][0-9a-f])")


def listed_name(name: str) -> str:
    """A local name, or path, as lists of a workspace have it."""
    text = _ESCAPE.sub(lambda found: r"\x5c" + found[0][1:], name)
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def local_name(path: str) -> str:
    """A name, or path, of a list as `open` and `Path` take it."""
    return _ESCAPE.sub(lambda found: _character(int(found[1], 16)), path)


def _character(byte: int) -> str:
    return chr(byte) if byte < 0x80 else chr(0xDC00 + byte)
