"""The long-term memory: searched and written by sessions, kept in order by their hosts."""

import hashlib
import secrets
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from orchestrator.cluster.shared import Write
from orchestrator.ground.errors import PermissionDeniedError
from orchestrator.ground.events import EventDraft, now
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import Principal
from orchestrator.rules.policy.memory_levels import SEARCH, WRITE, check_memory
from orchestrator.state.session import Session
from orchestrator.state.session_secrets import check_not_stored
from orchestrator.work.memory.entries import (
    DEFAULT,
    MOST_BOOTSTRAP,
    MOST_FOUND,
    EntryKind,
    MemoryEntry,
    Wanted,
    fenced,
)
from orchestrator.work.memory.memory_store import MemoryStore, gone

# The risk tiers of levels that read and write, apart from the rules of levels: if either is wrong,
# the other still refuses.
_READERS, _WRITERS = frozenset({"medium", "high", "critical"}), frozenset({"high", "critical"})


class Bootstrap(NamedTuple):
    """What a session begins with: entries, and the same as text for a model."""

    entries: list[MemoryEntry]
    text: str


class Memory:
    """Entries belong to a key: its sessions share them, and no others see them."""

    def __init__(self, store: MemoryStore, recorder: Recorder) -> None:
        self._store = store
        self._recorder = recorder

    # For sessions.

    async def search(
        self, principal: Principal, session: Session, words: str, namespace: str, limit: int
    ) -> list[MemoryEntry]:
        """The entries with one of the words, the best first; without words, the newest.

        Raises: PermissionDeniedError by the level; the errors of `Session.check_live`,
        `SessionSecrets.check_known` and `Recorder.check_room`; ClusterUnavailableError.
        """
        args = {"namespace": namespace, "query": words, "limit": limit}
        await self._admit(principal, session, SEARCH, args)
        found = await self._store.found(session.owner, namespace, words, min(limit, MOST_FOUND))
        await self._record_found(principal, session, args, found)
        return found

    async def write(self, principal: Principal, session: Session, wanted: Wanted) -> MemoryEntry:
        """Adds an entry.

        Raises: as `search`; ValidationError if a secret of the session is in it; ConflictError if
        there are too many.
        """
        entry = _entry(wanted, session.owner, principal.name, session.id)
        args = _recorded(entry)
        await self._admit(principal, session, WRITE, args)
        stored = {
            "text": wanted.text,
            "tags": list(wanted.tags),
            "namespace": wanted.namespace,
        }
        check_not_stored(stored, await self._recorder.cut(session, stored))
        draft = _draft(principal, WRITE, args)._replace(decision="allow")
        await self._store.add(entry, draft, partial(self._recorder.record, session))
        return entry

    async def bootstrap(self, principal: Principal, session: Session, namespace: str) -> Bootstrap:
        """The standing instructions (`sop`) and the `bootstrap` entries, within their bounds.

        Raises: as `search`.
        """
        args = {"namespace": namespace, "bootstrap": True}
        await self._admit(principal, session, SEARCH, args)
        entries = await self._first(session, namespace)
        await self._record_found(principal, session, args, entries)
        return Bootstrap(entries, fenced(entries))

    async def beginning(self, principal: Principal, session: Session) -> str:
        """The text with which a run's model begins; empty at levels that may not search.

        Raises: as `search`.
        """
        if session.level.risk_tier not in _READERS or not await self._first(session, DEFAULT):
            return ""
        return (await self.bootstrap(principal, session, DEFAULT)).text

    async def _first(self, session: Session, namespace: str) -> list[MemoryEntry]:
        kinds: tuple[EntryKind, ...] = ("sop", "bootstrap")
        return await self._store.first_of(session.owner, namespace, kinds, MOST_BOOTSTRAP)

    async def _admit(
        self, principal: Principal, session: Session, tool: str, args: dict[str, object]
    ) -> None:
        """Raises: PermissionDeniedError, which is on record."""
        session.check_live()
        session.secrets.check_known()
        self._recorder.check_room(session)
        try:
            check_memory(session.level, tool)
            if session.level.risk_tier not in (_READERS if tool == SEARCH else _WRITERS):
                raise PermissionDeniedError(
                    f"the memory refuses {tool} to sessions at {session.level.name}",
                    rule="memory-level",
                )
        except PermissionDeniedError as error:
            draft = _draft(principal, tool, args)
            draft = draft._replace(decision="deny", rule=error.fields["rule"], error=error.detail)
            await self._recorder.record(session, draft)
            raise

    async def _record_found(
        self,
        principal: Principal,
        session: Session,
        args: dict[str, object],
        found: list[MemoryEntry],
    ) -> None:
        draft = _draft(principal, SEARCH, args)._replace(decision="allow")
        await self._recorder.record(session, draft._replace(result={"found": len(found)}))

    # For hosts.

    async def page(
        self, owner: str | None, namespace: str | None, before: str | None, limit: int
    ) -> list[MemoryEntry]:
        """Entries of a key, or of all, newest first; those before the one with that id."""
        return await self._store.listed(owner, namespace, before, limit)

    async def add(self, principal: Principal, owner: str, wanted: Wanted) -> MemoryEntry:
        """Adds an entry to a key's.

        Raises: ConflictError if there are too many; ClusterUnavailableError.
        """
        entry = _entry(wanted, owner, principal.name, None)
        await self._store.add(entry, _kept(principal, entry), self._of_key(owner))
        return entry

    async def change(self, principal: Principal, entry_id: str, wanted: Wanted) -> MemoryEntry:
        """Replaces what an entry contains. Raises: NotFoundError, ClusterUnavailableError."""
        changed = replace(
            await self._visible(principal, entry_id),
            text=wanted.text,
            namespace=wanted.namespace,
            tags=wanted.tags,
            kind=wanted.kind,
            # The host stands for it from now on.
            session_id=None,
            written_by=principal.name,
            changed_at=now(),
        )
        write = self._of_key(changed.owner)
        await self._store.replace(changed, _kept(principal, changed), write)
        return changed

    async def remove(self, principal: Principal, entry_id: str) -> MemoryEntry:
        """Forgets an entry. Raises: NotFoundError, ClusterUnavailableError."""
        entry = await self._visible(principal, entry_id)
        draft = EventDraft(
            "memory.remove", actor=principal.name, decision="allow", args={"id": entry.id}
        )
        await self._store.remove(entry, draft, self._of_key(entry.owner))
        return entry

    def _of_key(self, owner: str) -> Write:
        return partial(self._recorder.record_of_key, owner)

    async def _visible(self, principal: Principal, entry_id: str) -> MemoryEntry:
        entry = await self._store.get(entry_id)
        if entry is None or principal.sees_owner not in (None, entry.owner):
            raise gone(entry_id)
        return entry


def _kept(principal: Principal, entry: MemoryEntry) -> EventDraft:
    return _draft(principal, WRITE, _recorded(entry))._replace(decision="allow")


def _draft(principal: Principal, tool: str, args: dict[str, object]) -> EventDraft:
    operation = "memory.search" if tool == SEARCH else "memory.write"
    return EventDraft(operation, actor=principal.name, args=args)


def _entry(wanted: Wanted, owner: str, written_by: str, session_id: str | None) -> MemoryEntry:
    time = now()
    return MemoryEntry(
        id=f"mem-{secrets.token_hex(8)}",
        owner=owner,
        namespace=wanted.namespace,
        kind=wanted.kind,
        text=wanted.text,
        tags=wanted.tags,
        session_id=session_id,
        written_by=written_by,
        created_at=time,
        changed_at=time,
    )


def _recorded(entry: MemoryEntry) -> dict[str, object]:
    """What is recorded of an entry: everything but its text."""
    data = entry.text.encode()
    return {
        "id": entry.id,
        "namespace": entry.namespace,
        "kind": entry.kind,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
