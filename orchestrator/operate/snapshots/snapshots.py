"""Takes snapshots of sessions, and creates sessions from them."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeAlias, TypeVar

from orchestrator.ground.errors import (
    CapacityExhaustedError,
    ConflictError,
    TooLargeError,
    ValidationError,
)
from orchestrator.ground.events import EventDraft, now
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.effect import Effect, both
from orchestrator.ground.threads import Threads
from orchestrator.host.workspace.storage import Storage
from orchestrator.operate.snapshots import manifest as manifests
from orchestrator.operate.snapshots.archive import (
    FORMS,
    MOST_MANIFEST_BYTES,
    STAGED,
    ArchiveReader,
    PartFacts,
)
from orchestrator.operate.snapshots.conversation import StoredConversation
from orchestrator.operate.snapshots.snapshot import ReceivedSnapshot, TakenSnapshot
from orchestrator.operate.snapshots.spool import Spool
from orchestrator.operate.snapshots.trees import SECONDS, SnapshotFailedError, TreeHelper
from orchestrator.programs.turns import turn_rows
from orchestrator.programs.turns.notes import Notes
from orchestrator.programs.turns.runs import queue, timeline_rows
from orchestrator.programs.turns.turn import TurnRecord
from orchestrator.record.audit.recorded_event import Recorded
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import Principal
from orchestrator.rules.policy.policy_files import SessionPolicies
from orchestrator.sandbox.sandboxes.workspaces import Workspaces
from orchestrator.sessions.sessions import Sessions
from orchestrator.settings.settings import Settings
from orchestrator.state.requests import NewSession, Registered
from orchestrator.state.restored_session import Carried
from orchestrator.state.session import Session

T = TypeVar("T")

# Snapshots that are taken, sent, received or restored at the same time; each key has one at most.
_MOST = 4
_RETRY_SECONDS = 10
_RECEIVE_SECONDS = 3600
_SPARE_SECONDS = 60
# Bytes of an upload that are written at once.
_BATCH = 4 * 1024 * 1024
_TURNS = 1000


# A manifest, the parts that it lists, and the first names that they leave out.
_Parts: TypeAlias = tuple[bytes, list[PartFacts], list[str]]


class Snapshots:
    """Trees are packed and unpacked by a helper process with the workspace's user's rights.

    Until a snapshot is sent or restored, its parts are files without names in the state directory.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        recorder: Recorder,
        storage: Storage,
        workspaces: Workspaces,
        sessions: Sessions,
        policies: SessionPolicies,
    ) -> None:
        self._settings = settings
        self._database = database
        self._recorder = recorder
        self._storage = storage
        self._workspaces = workspaces
        self._sessions = sessions
        self._policies = policies
        self._threads = Threads("snapshots", _MOST)
        self._keys: set[str] = set()

    @contextmanager
    def _place(self, principal: Principal) -> Iterator[ExitStack]:
        """Counts a snapshot of this key until the end of the stack, which is that of the block.

        Raises: CapacityExhaustedError.
        """
        account = principal.account
        if account in self._keys or len(self._keys) >= _MOST:
            raise CapacityExhaustedError(
                f"a snapshot of this key, or {_MOST} of all keys, are on their way: try again",
                retry_after=_RETRY_SECONDS,
            )
        self._keys.add(account)
        with ExitStack() as held:
            held.callback(self._keys.discard, account)
            yield held

    def _spool(self) -> Spool:
        settings = self._settings
        return Spool(settings.state_dir, settings.min_free_disk_bytes)

    # Taking.

    async def take(self, principal: Principal, session: Session) -> TakenSnapshot:
        """Takes the session's snapshot, which is then complete on disk; the caller must close it.

        The session has no sandbox meanwhile, and gets one at its next use. Raises: ConflictError,
        also if a turn runs; TooLargeError, SnapshotFailedError, CapacityExhaustedError; the errors
        of `Suspensions.without_sandbox` and `Recorder.check_room`.
        """
        session.check_live()
        self._recorder.check_room(session)
        if session.pack is not None:
            raise ConflictError("a session with a context pack has no snapshot: issue it again")
        if session.family.shares:
            raise ConflictError("a child that reads its parent's workspace has no snapshot")
        with self._place(principal) as held:
            suspensions = self._sessions.suspensions
            async with suspensions.without_sandbox(principal, session, "snapshot"):
                return await self._taken(principal, session, held)

    async def pack(self, principal: Principal, session: Session) -> TakenSnapshot:
        """Likewise, of a session that its caller holds without a sandbox."""
        with self._place(principal) as held:
            return await self._taken(principal, session, held)

    async def _taken(
        self, principal: Principal, session: Session, held: ExitStack
    ) -> TakenSnapshot:
        spool = self._spool()
        held.callback(spool.close)
        parts, recorded = await self._take(principal, session, spool)
        return TakenSnapshot(*parts, recorded, spool, held.pop_all())

    async def _take(
        self, principal: Principal, session: Session, spool: Spool
    ) -> tuple[_Parts, Recorded]:
        turns, notes = await self._turns(session)
        conversation = await self._database.read(partial(_conversation, session_key=session.key))
        area = self._storage.area(session.workspace, session.key) if session.stages else None
        if area is not None and area.unsettled:
            raise ConflictError("a commit of the session is not settled: try again")
        helper = self._helper(spool, session)
        staged = area if area is not None and area.exists else None

        def pack() -> _Parts:
            skipped = helper.pack(staged)
            form = FORMS[0] if staged is None else FORMS[1]
            parts = [spool.facts(name) for name in form]
            data = manifests.written(session, now(), turns, notes, conversation, parts, skipped)
            return data, parts, skipped

        data, parts, skipped = await self._call(pack)
        recorded = await self._recorder.record(
            session,
            EventDraft(
                "session.snapshot",
                actor=principal.name,
                decision="allow",
                args={
                    "sha256": manifests.sha256(data),
                    "turns": len(turns),
                    "skipped": len(skipped),
                    "parts": [part._asdict() for part in parts],
                },
            ),
        )
        return (data, parts, skipped), recorded

    async def _turns(self, session: Session) -> tuple[list[TurnRecord], Notes]:
        """Raises: ConflictError if one runs; TooLargeError."""
        found: list[TurnRecord] = []
        size, more = 0, True
        while more:
            after = found[-1].number if found else 0
            page, more, length = await self._database.browse(
                partial(_page, session_key=session.key, after=after)
            )
            found += page
            size += length
            if size > MOST_MANIFEST_BYTES:
                raise TooLargeError("the session's turns are too long for a snapshot")
        if any(not turn.ended for turn in found):
            raise ConflictError("a turn of this session is running: wait for it, or interrupt it")
        notes = await self._database.read(partial(turn_rows.notes_of, session_key=session.key))
        return found, notes

    def _helper(self, spool: Spool, session: Session) -> TreeHelper:
        workspace = session.workspace
        data, most = self._storage.data(workspace), session.limits.workspace_bytes
        return TreeHelper(spool, data, workspace.uid, most)

    # Restoring.

    async def receive(
        self,
        principal: Principal,
        upload: AsyncIterator[bytes],
        check: Callable[[TurnRecord], object],
    ) -> ReceivedSnapshot:
        """Receives the upload, a complete and unaltered snapshot; the caller must close it.

        `check` raises pydantic's error for a turn that can't be shown. Raises: SnapshotError,
        TooLargeError, CapacityExhaustedError.
        """
        with self._place(principal) as place:
            received = ReceivedSnapshot(self._spool(), place.pop_all())

        def listed(data: bytes) -> list[PartFacts]:
            received.learn(data, manifests.read(data, check))
            return received.manifest.listed()

        reader = ArchiveReader(listed, received.spool.sink)
        try:
            async with asyncio.timeout(_RECEIVE_SECONDS):
                batch = bytearray()
                async for piece in upload:
                    batch += piece
                    if len(batch) >= _BATCH:
                        await self._call(partial(reader.feed, bytes(batch)))
                        batch.clear()
                await self._call(partial(reader.feed, bytes(batch)))
            reader.finish()
        except TimeoutError:
            received.close()
            raise ValidationError(
                f"the snapshot did not arrive within {_RECEIVE_SECONDS} s", field="archive"
            ) from None
        except BaseException:
            received.close()
            raise
        return received

    async def restore(
        self,
        principal: Principal,
        received: ReceivedSnapshot,
        request: NewSession,
        session_id: str | None = None,
    ) -> Registered:
        """Creates the session; nothing of it is left if that fails. Closes what was received.

        `request` is the one in the snapshot, validated in form. With another `session_id`, its time
        and its budget begin anew. Raises: the errors of
        `Sessions.create`; SnapshotError for a hostile part, ConflictError for a known id.
        """
        with received:
            return await self._sessions.create(
                principal, self.wanted(received, request, session_id)
            )

    def wanted(
        self, received: ReceivedSnapshot, request: NewSession, session_id: str | None = None
    ) -> NewSession:
        """The request with all that the snapshot has. Raises: ValidationError."""
        manifest = received.manifest
        policy = self._policies.resolve(request.policy, "session.policy")
        if STAGED in received.spool and not policy.world_rules.proposal_mode:
            raise ValidationError(
                f"{STAGED} needs a policy with proposal mode", field="session.policy"
            )
        anew = session_id not in (None, request.id)
        carried = Carried(
            sha256=received.sha256,
            session_id=request.id or "",
            created_at=now() if anew else manifest.created_at,
            episodes=manifest.episodes,
            consumed={} if anew else manifest.used(),
            fill=partial(self._fill, received),
            keep=partial(_importing, received),
        )
        return replace(request, id=session_id or request.id, policy=policy, carried=carried)

    async def _fill(self, received: ReceivedSnapshot, session: Session) -> None:
        """Makes the new session's workspace, and what it has staged."""
        workspace, size = session.workspace, session.limits.workspace_bytes
        stages = session.key if session.stages else None
        await self._workspaces.prepare(workspace, size, stages)
        helper = self._helper(received.spool, session)
        await self._call(helper.unpack)
        if STAGED in received.spool:
            area = await self._workspaces.stage(workspace, session.key)
            await self._call(partial(helper.unpack_staged, area))

    async def _call(self, function: Callable[[], T]) -> T:
        """The result of `function`, which blocks. Raises: SnapshotFailedError if it takes long."""
        seconds = 3 * SECONDS + _SPARE_SECONDS
        try:
            return await self._threads.call(function, seconds)
        except TimeoutError as error:
            late = f"the snapshot can't be handled in time: it took over {seconds} s"
            raise SnapshotFailedError(late) from error


def _page(
    connection: sqlite3.Connection, session_key: str, after: int
) -> tuple[list[TurnRecord], bool, int]:
    """Turns, whether there may be more, and about how many bytes these have."""
    page, more = turn_rows.page(connection, session_key, after, _TURNS)
    return page, more, sum(len(str(turn.outcome)) + len(turn.printed) for turn in page)


def _conversation(connection: sqlite3.Connection, session_key: str) -> StoredConversation:
    timeline = timeline_rows.all_of(connection, session_key)
    waiting = queue.waiting_rows(connection, session_key)
    return StoredConversation(timeline, [each.text for each in waiting])


def _importing(received: ReceivedSnapshot, session_key: str) -> Effect:
    """Stores turns, notes, timeline and queue of a snapshot."""
    manifest = received.manifest
    turns = turn_rows.importing(session_key, received.turns, received.notes)
    return both(turns, manifest.conversation().importing(session_key))
