"""Which version, and which part of a file a request wants: its headers, parsed. Pure."""

import re
from collections.abc import Mapping

from orchestrator.ground.errors import ValidationError
from orchestrator.work.files.downloads import Range
from orchestrator.work.files.file_requests import Conditions
from sandbox_agent.decide.files.ranges import ANY

IF_MATCH = "If-Match"
IF_NONE_MATCH = "If-None-Match"
RANGE = "Range"
_IF_RANGE = "If-Range"
# The headers that an operation may read.
HEADERS = (IF_MATCH, IF_NONE_MATCH, RANGE, _IF_RANGE)
_LONGEST = 2048
_TAG = re.compile(r'\s*(W/)?"([^"]{0,128})"\s*(?:,|$)')
_BYTES = re.compile(r"bytes=\s*(\d{0,18})\s*-\s*(\d{0,18})\s*", re.ASCII)


def conditions(headers: Mapping[str, str]) -> Conditions:
    """`If-Match` and `If-None-Match`. Raises: ValidationError that names the header."""
    match, none_match = headers.get(IF_MATCH), headers.get(IF_NONE_MATCH)
    return Conditions(
        None if match is None else _tags(match, IF_MATCH, weak=False),
        None if none_match is None else _tags(none_match, IF_NONE_MATCH, weak=True),
    )


def wanted_range(headers: Mapping[str, str], version: str | None = None) -> Range | None:
    """The one range of `Range`; None: everything.

    As HTTP has it, a header in another form or with several ranges is ignored, and so is one with
    `If-Range`, unless that names the `version`, which is None where it is not known yet.
    """
    found = _BYTES.fullmatch(headers.get(RANGE, "")[:_LONGEST])
    if found is None or (_IF_RANGE in headers and headers[_IF_RANGE].strip() != f'"{version}"'):
        return None
    first = int(found[1]) if found[1] else None
    last = int(found[2]) if found[2] else None
    if (first, last) == (None, None):
        return None
    backwards = first is not None and last is not None and last < first
    return None if backwards else (first, last)


def _tags(text: str, header: str, *, weak: bool) -> tuple[str, ...]:
    """The entity tags; weak ones count only where `weak` comparison is meant."""
    if text.strip() == ANY:
        return (ANY,)
    found: list[str] = []
    place = 0
    while place < len(text) <= _LONGEST:
        tag = _TAG.match(text, place)
        if tag is None:
            break
        if weak or not tag[1]:
            found.append(tag[2])
        place = tag.end()
    if place < len(text) or not text:
        raise ValidationError(f'{header} must be * or entity tags, as "5d0e1f"', field=header)
    return tuple(found)
