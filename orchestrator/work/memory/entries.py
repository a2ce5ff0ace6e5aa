"""Entries of the long-term memory, their bounds, and their form as text for a model. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

EntryKind: TypeAlias = Literal["note", "bootstrap", "sop"]

# The namespace of calls that name none.
DEFAULT = "default"
# Entries of one key, in all its namespaces.
MOST_ENTRIES = 2_000
# Entries in one answer to a search.
MOST_FOUND = 50
# The entries with which a session begins, and their characters.
MOST_BOOTSTRAP = 20
MOST_BOOTSTRAP_CHARACTERS = 8_000
_BEGIN, _END = "<<<memory", "memory>>>"


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """One entry. `session_id` is the session that wrote it; None: its host did.

    `owner` is the name of the key whose sessions have it, `written_by` that of the caller.
    """

    id: str
    owner: str
    namespace: str
    kind: EntryKind
    text: str
    tags: tuple[str, ...]
    session_id: str | None
    written_by: str
    created_at: str
    changed_at: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an entry is to contain."""

    text: str
    namespace: str
    tags: tuple[str, ...] = ()
    kind: EntryKind = "note"


def fenced(entries: Iterable[MemoryEntry], most: int = MOST_BOOTSTRAP_CHARACTERS) -> str:
    """The entries, as far as they fit; none is cut. No text of an entry contains a mark."""
    texts, left = list[str](), most
    for entry in entries:
        text = _fenced_entry(entry)
        if len(text) > left:
            continue
        texts.append(text)
        left -= len(text)
    return "".join(texts)


def _fenced_entry(entry: MemoryEntry) -> str:
    origin = "host" if entry.session_id is None else f"session {entry.session_id}"
    text = entry.text.replace("<<<", "< < <").replace(">>>", "> > >")
    return f"{_BEGIN} {entry.kind} {entry.changed_at} {origin}\n{text}\n{_END}\n"
