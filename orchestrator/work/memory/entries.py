"""Entries of the long-term memory, and their bounds."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

EntryKind: TypeAlias = Literal["note", "bootstrap", "sop"]

# The namespace of calls that name none.
DEFAULT = "default"
# Entries of one key, in all its namespaces.
MOST_ENTRIES = 2_000
# Of one answer to a search.
MOST_FOUND = 50


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
