"""Markdown of the generated parts."""

from collections.abc import Sequence


def table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table with these columns."""
    lines = (columns, ("---",) * len(columns), *rows)
    return "\n".join(f"| {' | '.join(map(_cell, row))} |" for row in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
