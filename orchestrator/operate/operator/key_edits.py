"""Creates and revokes API keys while the control plane runs, on record."""

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from orchestrator.cluster.base import KeyStore
from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import ClusterUnavailableError, ConflictError, NotFoundError
from orchestrator.ground.events import EventDraft
from orchestrator.ground.threads import Threads
from orchestrator.operate.operator.reload import Reload
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.key_rotation import rotated
from orchestrator.rules.access.keys import ADMIN_NAME, KeyRing, Principal
from orchestrator.rules.access.keys_file import add_key, check_key, remove_key, rotate_key
from orchestrator.settings.settings import Settings

T = TypeVar("T")

# The limit for an edit, which waits for other editors of the file.
_EDIT_SECONDS = 10.0


class KeyEdits:
    """Edits the keys file as the command line does, or the keys of a cluster.

    A change is in force when a call returns, in a cluster on this node; the others are told.
    """

    def __init__(self, settings: Settings, reload: Reload, recorder: Recorder) -> None:
        self._path = settings.keys_path
        self._keys: KeyRing = reload.keys
        self._reload = reload
        self._recorder = recorder
        self._threads = Threads("the keys file", 1)
        self._lock = asyncio.Lock()

    @property
    def file(self) -> str:
        """The path of the keys file, or what stands for it."""
        return str(self._path) if self._store is None else "the cluster's database"

    @property
    def _store(self) -> KeyStore | None:
        return self._reload.key_files.source.store

    async def obstacle(self) -> str | None:
        """Why the file can't be changed, and what to do instead; None if it can."""

        def writable() -> bool:
            return os.access(self._path.parent, os.W_OK)

        if self._store is not None:
            return None
        return None if await self._in_thread(writable) else self._read_only("is read-only")

    async def create(self, actor: str, key: Principal) -> str:
        """Adds a key and returns its secret, which is stored nowhere.

        Raises: ConflictError if the name is taken, or the file can't be changed;
        ClusterUnavailableError; AuditUnavailableError, and then there is no key.
        """
        async with self._lock:
            store = self._store
            if store is None:
                await self._edit(partial(check_key, self._path, key))
            else:
                await store.check(key)
            await self._record("key.create", actor, _recorded(key))
            try:
                if store is None:
                    secret = await self._edit(partial(add_key, self._path, key))
                else:
                    secret = await store.add(key)
                await self._apply(key.name, exists=True)
            except (ConflictError, ClusterUnavailableError) as error:
                await self._record("key.create", actor, {"name": key.name}, error.detail)
                raise
            return secret

    async def rotate(self, actor: str, name: str, overlap: timedelta) -> str:
        """Gives a key another secret and returns it; the one so far is valid for the overlap.

        Raises: NotFoundError; ConflictError for the admin key, while an earlier rotation's old
        secret is valid, or if the file can't be changed; ClusterUnavailableError;
        AuditUnavailableError, and then nothing is changed.
        """
        async with self._lock:
            known = self._editable(name)
            rotated(known, known.sha256, overlap)  # refused before it is on record
            args = {"name": name, "overlap_seconds": round(overlap.total_seconds())}
            await self._record("key.rotate", actor, args)
            try:
                store = self._store
                if store is None:
                    secret = await self._edit(partial(rotate_key, self._path, name, overlap))
                else:
                    secret = await store.rotate(name, overlap)
                await self._apply(name, exists=True)
            except (ConflictError, NotFoundError, ClusterUnavailableError) as error:
                await self._record("key.rotate", actor, {"name": name}, error.detail)
                raise
            return secret

    async def revoke(self, actor: str, name: str) -> None:
        """Removes a key, which is refused, and whose streams end, before that is recorded.

        Raises: NotFoundError; ConflictError for the admin key, or if the file can't be changed;
        AuditUnavailableError if the removal is not on record.
        """
        async with self._lock:
            self._editable(name)
            store = self._store
            if store is None:
                await self._edit(partial(remove_key, self._path, name))
            else:
                await store.remove(name)
            await self._apply(name, exists=False)
            await self._record("key.revoke", actor, {"name": name}, stop=True)

    def _editable(self, name: str) -> Principal:
        """The key that can be changed here. Raises: NotFoundError, ConflictError."""
        if name == ADMIN_NAME:
            raise ConflictError(
                "the admin key is not in the keys file: replace it on the host with "
                "`paddock keys rotate-admin`, or change PADDOCK_ADMIN_KEY and restart"
            )
        known = self._keys.named(name)
        if known is None:
            raise NotFoundError("there is no key with this name")
        return known

    async def _apply(self, name: str, *, exists: bool) -> None:
        """Puts the file into force. Raises: ConflictError if the key is not as it should be then.

        It does not matter whether the reading is on record, because the key's own event is.
        """
        with suppress(TimeoutError):
            if self._store is None:
                await self._reload.look()
            else:
                await self._reload.key_files.reload()
        if (self._keys.named(name) is not None) is not exists:
            problem = self._reload.problems.get(self._path, "its disk does not answer")
            raise ConflictError(f"the keys file is changed, but not in force: {problem}")

    async def _edit(self, edit: Callable[[], T]) -> T:
        try:
            return await self._in_thread(edit)
        except ConfigError as error:
            if isinstance(error.__cause__ or error.__context__, OSError):
                raise ConflictError(self._read_only(str(error))) from None
            raise ConflictError(str(error)) from None

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await self._threads.call(work, _EDIT_SECONDS)
        except TimeoutError:
            raise ConflictError(
                f"{self._path} can't be changed now: another editor holds it, or its disk hangs; "
                "try again"
            ) from None

    def _read_only(self, why: str) -> str:
        return (
            f"keys can't be changed here: {self._path.parent} {why}. Change the file where it is "
            "kept (it takes effect at once), or set PADDOCK_KEYS_FILE to a file that the control "
            "plane may write"
        )

    async def _record(
        self,
        operation: str,
        actor: str,
        args: Mapping[str, Any],
        error: str | None = None,
        *,
        stop: bool = False,
    ) -> None:
        draft = EventDraft(
            operation,
            actor,
            decision="allow" if error is None else None,
            args=args,
            error=error,
            stop=stop,
        )
        await self._recorder.record_system(draft)


def _recorded(key: Principal) -> dict[str, Any]:
    """The key's entry for the record, in which fractions are texts."""
    members = {
        "name": key.name,
        "role": str(key.role),
        "owner": key.owner,
        **asdict(key.limits),
        **asdict(key.bounds),
        "scopes": None if key.scopes is None else sorted(key.scopes),
        "expires_at": None if key.expires_at is None else key.expires_at.isoformat(),
    }
    return {name: _plain(value) for name, value in members.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:g}"
    return list(value) if isinstance(value, tuple) else value
