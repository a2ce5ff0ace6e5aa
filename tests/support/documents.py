"""Reads the documents and their code blocks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.server import ROOT

_FENCE = re.compile(r"```(\w*)\s*")
_NOTE = re.compile(r"<!-- (.+) -->")


@dataclass(frozen=True)
class Block:
    """A code block; `note` is the comment on the preceding line."""

    language: str
    text: str
    line: int
    note: str


def documents() -> list[Path]:
    """Every document."""
    names = (
        "CONTRIBUTING.md",
        "README.md",
        "SECURITY.md",
        "sandbox_agent/README.md",
        "sdk/js/README.md",
    )
    texts = [ROOT / name for name in names]
    return [*texts, *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str) -> Iterator[Block]:
    """The code blocks of a document, in order."""
    lines = text.splitlines()
    start = None
    for number, line in enumerate(lines):
        fence = _FENCE.fullmatch(line)
        if start is None and fence:
            start, language = number, fence[1]
            note = _NOTE.fullmatch(lines[number - 1]) if number else None
        elif start is not None and line == "```":
            yield Block(language, "\n".join(lines[start + 1 : number]), start + 1, _said(note))
            start = None
    assert start is None, f"line {start}: the block does not end"


def _said(note: re.Match[str] | None) -> str:
    return "" if note is None else note[1]
