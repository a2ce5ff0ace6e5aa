"""Entries as text for a model: each between marks, because what it says is data. Pure."""

from collections.abc import Iterable

from orchestrator.work.memory.entries import MemoryEntry

# Of what a session begins with.
MOST_BOOTSTRAP = 20
MOST_BOOTSTRAP_CHARACTERS = 8_000
_BEGIN, _END = "<<<memory", "memory>>>"


def fenced(entries: Iterable[MemoryEntry], most: int = MOST_BOOTSTRAP_CHARACTERS) -> str:
    """The entries, as far as they fit; none is cut. No text of an entry contains a mark."""
    said, left = [], most
    for entry in entries:
        text = _one(entry)
        if len(text) > left:
            continue
        said.append(text)
        left -= len(text)
    return "".join(said)


def _one(entry: MemoryEntry) -> str:
    origin = "host" if entry.session_id is None else f"session {entry.session_id}"
    text = entry.text.replace("<<<", "< < <").replace(">>>", "> > >")
    return f"{_BEGIN} {entry.kind} {entry.changed_at} {origin}\n{text}\n{_END}\n"
