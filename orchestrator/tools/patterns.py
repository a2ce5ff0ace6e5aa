"""Regular expressions of manifests, on RE2: linear time whatever the text is.

A pattern matches the whole text, in its own case, on one line.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import re2  # type: ignore[import-untyped]

# Nobody reviews a longer one; RE2's own bound on memory comes on top.
MAX_PATTERN = 2000
_MAX_MEMORY = 1024 * 1024
_NOT_IN_RE2 = "patterns run on RE2, which has neither look-around nor backreferences"
_ONE_LINE = "patterns are case-sensitive and of one line"
_TOKEN = re.compile(
    r"\\.|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|\(\?(?:<[=!]|P[<=>]|.)?|.", re.DOTALL
)
_REFUSED = (
    (re.compile(r"\(\?(?:<?[=!])"), f"look-around is not supported: {_NOT_IN_RE2}"),
    (re.compile(r"\(\?P="), f"backreferences are not supported: {_NOT_IN_RE2}"),
    (re.compile(r"\\[1-9]"), f"backreferences are not supported: {_NOT_IN_RE2}"),
    (re.compile(r"\(\?[a-zA-OQ-Z-]"), f"inline flags are not supported: {_ONE_LINE}"),
    # A single byte is no character, and quoting would hide the constructs above.
    (re.compile(r"\\[CQE]"), "\\C, \\Q and \\E are not supported"),
)


class PatternError(ValueError):
    """A pattern that can't be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Match:
    """What the groups of a pattern took; a group that took no part is None."""

    groups: tuple[str | None, ...]
    named: dict[str, str | None]
    spans: dict[str, tuple[int, int]]  # of the named ones, where they stand in the text


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern; `text` is how it was written."""

    text: str
    names: frozenset[str]
    compiled: Any

    def fullmatch(self, text: str) -> Match | None:
        """The match of the whole text. A text that is not UTF-8 matches nothing."""
        try:
            found = self.compiled.fullmatch(text)
        except UnicodeEncodeError:
            return None
        if found is None:
            return None
        places = {name: found.span(at) for name, at in self.compiled.groupindex.items()}
        return Match(found.groups(), found.groupdict(), places)

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        return self.fullmatch(text) is not None


def compile_pattern(text: str) -> Pattern:
    """Compiles a pattern. Raises: PatternError."""
    if not text or len(text) > MAX_PATTERN:
        raise PatternError(f"must have 1 to {MAX_PATTERN} characters")
    tokens = list(_tokens(text))
    for token in tokens:
        for refused, reason in _REFUSED:
            if refused.match(token):
                raise PatternError(reason)
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    try:
        compiled = re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        shown = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        if "repetition size" in shown:
            shown += ", 1000 times is the most, those of nested ones multiplied"
        raise PatternError(f"does not compile: {shown}") from None
    except UnicodeEncodeError:
        raise PatternError("must be UTF-8") from None
    if len(compiled.groupindex) < sum(token in ("(?P<", "(?<") for token in tokens):
        raise PatternError("two groups have the same name")
    return Pattern(text, frozenset(compiled.groupindex), compiled)


def _tokens(text: str) -> Iterator[str]:
    """Escapes, whole character classes, openings of special groups, and single characters."""
    return (found[0] for found in _TOKEN.finditer(text))
