"""Regular expressions of manifests, run by RE2 in linear time for any text.

A pattern matches the whole text, case-sensitively, on one line.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import re2  # type: ignore[import-untyped]

# Nobody can review a longer pattern. RE2's own memory limit applies as well.
MAX_PATTERN = 2000
_MAX_MEMORY = 1024 * 1024
_NOT_IN_RE2 = "patterns run on RE2, which has neither look-around nor backreferences"
_ONE_LINE = "patterns are case-sensitive and match one line"
_TOKEN = re.compile(
    r"\\.|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|\(\?(?:<[=!]|P[<=>]|.)?|.", re.DOTALL
)
_REFUSED = (
    (re.compile(r"\(\?(?:<?[=!])"), f"look-around is not supported: {_NOT_IN_RE2}"),
    (re.compile(r"\(\?P="), f"backreferences are not supported: {_NOT_IN_RE2}"),
    (re.compile(r"\\[1-9]"), f"backreferences are not supported: {_NOT_IN_RE2}"),
    (re.compile(r"\(\?[a-zA-OQ-Z-]"), f"inline flags are not supported: {_ONE_LINE}"),
    # A single byte is not a character, and quoting would hide the constructs above.
    (re.compile(r"\\[CQE]"), "\\C, \\Q and \\E are not supported"),
)


class PatternError(ValueError):
    """A pattern that can't be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Match:
    """The texts that a pattern's groups matched; None for a group that did not take part."""

    groups: tuple[str | None, ...]
    named: dict[str, str | None]
    spans: dict[str, tuple[int, int]]  # positions of the named groups in the text


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern; `text` is its source."""

    text: str
    names: frozenset[str]
    compiled: Any

    def fullmatch(self, text: str) -> Match | None:
        """Matches the whole text. A text that is not UTF-8 does not match."""
        try:
            found = self.compiled.fullmatch(text)
        except UnicodeEncodeError:
            return None
        if found is None:
            return None
        places = {name: found.span(at) for name, at in self.compiled.groupindex.items()}
        return Match(found.groups(), found.groupdict(), places)

    def matches(self, text: str) -> bool:
        """Whether it matches the whole text."""
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
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        if "repetition size" in text:
            text += "; at most 1000 repetitions are allowed, multiplied when nested"
        raise PatternError(f"does not compile: {text}") from None
    except UnicodeEncodeError:
        raise PatternError("must be UTF-8") from None
    if len(compiled.groupindex) < sum(token in ("(?P<", "(?<") for token in tokens):
        raise PatternError("two groups have the same name")
    return Pattern(text, frozenset(compiled.groupindex), compiled)


def _tokens(text: str) -> Iterator[str]:
    """Escapes, whole character classes, openings of special groups, and single characters."""
    return (found[0] for found in _TOKEN.finditer(text))
