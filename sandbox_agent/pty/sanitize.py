"""Characters that no line may have, whatever its pattern says. Rejected, never stripped. Pure.

The control plane decides by it, and the agent again before it writes anything.
"""

import unicodedata

MAX_TEXT = 8192  # characters of one input
# What shells and their like take for syntax.
INJECTION = frozenset(";|&$`(){}[]<>!\n\r")
# Parentheses are harmless in a line without the others, and SQL can't do without.
LINE_INJECTION = INJECTION - frozenset("()")
# By Unicode category: control characters, which a terminal's line discipline obeys (^C, ^D, ^Z, ^U,
# ESC, and 0x80 to 0x9f); characters that are not shown or turn the direction, so that a person
# would approve another text than the one that is sent; lone surrogates; line and paragraph breaks.
_REFUSED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def control_characters(text: str) -> str | None:
    """Why a text may not go to a terminal at all; None where it may."""
    if text.isascii() and text.isprintable():
        return None
    for position, char in enumerate(text):
        if unicodedata.category(char) in _REFUSED:
            return f"character {position + 1} is the control character U+{ord(char):04X}"
    return None


def injection(text: str, refused: frozenset[str] = LINE_INJECTION) -> str | None:
    """Why a text is not free of what shells take for syntax; None where it is."""
    found = sorted(refused.intersection(text))
    if not found:
        return None
    return f"{' '.join(repr(char)[1:-1] for char in found)} may not be in it"
