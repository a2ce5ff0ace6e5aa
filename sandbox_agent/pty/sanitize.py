"""Characters that no line may have, whatever its pattern says. Rejected, never stripped. Pure.

The control plane decides by it, and the agent again before it writes anything.
"""

import re
import unicodedata

MAX_TEXT = 8192  # characters of one input
# Of a line that is sent: any 8,192 characters of up to three bytes.
MAX_LINE_BYTES = 28 * 1024
# What shells and their like take for syntax.
INJECTION = frozenset(";|&$`(){}[]<>!\n\r")
# Parentheses are harmless in a line without the others, and SQL can't do without.
LINE_INJECTION = INJECTION - frozenset("()")
# By Unicode category: control characters, which a terminal's line discipline obeys (^C, ^D, ^Z, ^U,
# ESC, and 0x80 to 0x9f); format characters, as those that turn the direction; lone surrogates;
# line and paragraph breaks.
_REFUSED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Characters that are not shown, so that a person would approve another text than the one that
# is sent: Unicode's Default_Ignorable_Code_Point, with what is reserved for later ones.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def control_characters(text: str) -> str | None:
    """Why a text may not go to a terminal at all; None where it may."""
    if text.isascii() and text.isprintable():
        return None
    for position, char in enumerate(text):
        if _INVISIBLE.match(char):
            return f"character {position + 1} is the invisible character U+{ord(char):04X}"
        if unicodedata.category(char) in _REFUSED:
            return f"character {position + 1} is the control character U+{ord(char):04X}"
    return None


def injection(text: str, refused: frozenset[str] = LINE_INJECTION) -> str | None:
    """Why a text is not free of what shells take for syntax; None where it is."""
    found = sorted(refused.intersection(text))
    if not found:
        return None
    return f"{' '.join(repr(char)[1:-1] for char in found)} may not be in it"
