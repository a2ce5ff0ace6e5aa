"""Finds the targets in a line of input."""

import re

from orchestrator.rules.tools.patterns import Match, Pattern

TARGET = "target"
# The literal beginning of a pattern; an escaped letter stands for a class.
_LITERAL = re.compile(r"\^?((?:[^\\^$.|?*+()\[\]{}]|\\[^A-Za-z0-9])*)(.?)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
# They make the previous character optional.
_QUANTIFIERS = frozenset("?*+{")


def find_targets(pattern: Pattern, match: Match, text: str) -> list[str]:
    """The targets of a matching text. All of them must be in scope, and there must be at least one.

    They are the match of the group `target`, else the match of the first group, else every word
    after the pattern's literal beginning.
    """
    if TARGET in pattern.names:
        found = match.named[TARGET]
        return [found] if found else []
    if match.groups:
        return [match.groups[0]] if match.groups[0] else []
    return text[len(_beginning(pattern.text, text)) :].split()


def _beginning(pattern: str, text: str) -> str:
    """The whole words with which every text of the pattern, including this one, begins."""
    literal = _LITERAL.match(pattern)
    if literal is None:
        return ""
    prefix, following = _ESCAPED.sub(r"\1", literal[1]), literal[2]
    if following in _QUANTIFIERS:
        prefix = prefix[:-1]
    prefix = prefix[: prefix.rfind(" ") + 1]
    return prefix if text.startswith(prefix) else ""
