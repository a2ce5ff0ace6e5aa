"""Rejects characters that no line may contain, whatever its pattern allows. Pure.

Nothing is stripped. The control plane decides by this, and the agent checks again before it writes
anything.
"""

import re
import unicodedata

MAX_TEXT = 8192  # characters of one input
# The most bytes of a line: room for 8,192 characters of up to three bytes, and a margin.
MAX_LINE_BYTES = 28 * 1024
# What shells and similar programs treat as syntax.
INJECTION = frozenset(";|&$`(){}[]<>!\n\r")
# Parentheses are harmless without the other characters, and SQL needs them.
LINE_INJECTION = INJECTION - frozenset("()")
# By Unicode category: control characters, which a terminal's line discipline acts on (^C, ^D, ^Z,
# ^U, ESC, and 0x80 to 0x9f); format characters, such as those that change the text direction; lone
# surrogates; line and paragraph separators.
_REFUSED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Invisible characters, which would let a person approve a different text than the one that is sent:
# Unicode's Default_Ignorable_Code_Point, including code points reserved for future ones.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def control_characters(text: str) -> str | None:
    """The reason why a text may not go to any terminal; None if it may."""
    if text.isascii() and text.isprintable():
        return None
    for position, char in enumerate(text):
        if _INVISIBLE.match(char):
            return f"character {position + 1} is the invisible character U+{ord(char):04X}"
        if unicodedata.category(char) in _REFUSED:
            return f"character {position + 1} is the control character U+{ord(char):04X}"
    return None


def injection(text: str, refused: frozenset[str] = LINE_INJECTION) -> str | None:
    """The reason why a text contains shell syntax; None if it does not."""
    found = sorted(refused.intersection(text))
    if not found:
        return None
    return f"{' '.join(repr(char)[1:-1] for char in found)} may not be in it"
