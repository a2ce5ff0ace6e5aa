"""Entries of the memory as the API shows them."""

from collections.abc import Iterable

from api.shape.objects import members
from orchestrator.work.memory import entries as domain
from paddock.contract.memory import MemoryEntry


def shown(found: Iterable[domain.MemoryEntry]) -> list[MemoryEntry]:
    """Entries in their order."""
    return [entry(each) for each in found]


def entry(found: domain.MemoryEntry) -> MemoryEntry:
    """One entry."""
    return MemoryEntry.model_validate(
        members(
            MemoryEntry, found, key=found.owner, session=found.session_id, tags=list(found.tags)
        )
    )
