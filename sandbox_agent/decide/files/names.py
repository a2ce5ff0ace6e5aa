r"""Names of files as text that JSON can carry, whatever bytes they have. Pure.

UTF-8 is itself. Each byte that is not UTF-8 is `\x` with two hex digits, from `\x80` to `\xff`. A
backslash that would be read as such an escape is `\x5c`; other backslashes are themselves. So each
name has one text, and each text is at most one name.

Programs that use the file system know names as `os.fsdecode` returns them, where such bytes are
lone surrogates. These are the names that the functions here convert.
"""

import re

# A path that can be opened, in bytes; its text may have four characters for each.
MOST_BYTES = 4096
MOST_TEXT = 4 * MOST_BYTES
# Why a text is refused.
NOT_SHOWN = r"has an escape, as \xff, where a list would have none"
_ESCAPE = re.compile(r"\\x(5c|[89a-f][0-9a-f])")


def shown(name: str) -> str:
    """The text of a name, or of a path."""
    return plain(_ESCAPE.sub(lambda found: r"\x5c" + found[0][1:], name))


def real(text: str) -> str:
    """The name, or the path, of such a text."""
    return _ESCAPE.sub(lambda found: _character(int(found[1], 16)), text)


def is_shown(text: str) -> bool:
    """Whether this is the text of a name: others have escapes that no name needs."""
    return "\\x" not in text or shown(real(text)) == text


def has_escape(text: str) -> bool:
    """Whether it differs from its name."""
    return _ESCAPE.search(text) is not None


def plain(text: str) -> str:
    """A text, such as a message, in which bytes that are not UTF-8 become escapes."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _character(byte: int) -> str:
    return chr(byte) if byte < 0x80 else chr(0xDC00 + byte)
