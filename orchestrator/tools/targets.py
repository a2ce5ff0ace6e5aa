"""Where in a line of input its targets stand."""

import re

from orchestrator.tools.patterns import Match, Pattern

TARGET = "target"
# What a pattern begins with that stands for itself; an escaped letter stands for a class.
_LITERAL = re.compile(r"\^?((?:[^\\^$.|?*+()\[\]{}]|\\[^A-Za-z0-9])*)(.?)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
# They make the character before them one that need not be there.
_QUANTIFIERS = frozenset("?*+{")


def find_targets(pattern: Pattern, match: Match, text: str) -> list[str]:
    """The targets of a text that matched: all of them must be in scope, and there must be one.

    They are what the group `target` took, else what the first group took, else every word
    after the literal beginning of the pattern.
    """
    if TARGET in pattern.names:
        found = match.named[TARGET]
        return [found] if found else []
    if match.groups:
        return [match.groups[0]] if match.groups[0] else []
    return text[len(_beginning(pattern.text, text)) :].split()


def _beginning(pattern: str, text: str) -> str:
    """Whole words that every text of the pattern begins with, and this one does."""
    literal = _LITERAL.match(pattern)
    if literal is None:
        return ""
    prefix, following = _ESCAPED.sub(r"\1", literal[1]), literal[2]
    if following in _QUANTIFIERS:
        prefix = prefix[:-1]
    prefix = prefix[: prefix.rfind(" ") + 1]
    return prefix if text.startswith(prefix) else ""
