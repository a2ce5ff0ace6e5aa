"""Snapshots that were taken, to be sent, or received, to be restored."""

from collections.abc import AsyncIterator
from contextlib import ExitStack
from functools import partial
from typing import Self

from orchestrator.ground.threads import bounded
from orchestrator.operate.snapshots import manifest as manifests
from orchestrator.operate.snapshots.archive import END, PartFacts, head, header, padding
from orchestrator.operate.snapshots.manifest import SnapshotForm
from orchestrator.operate.snapshots.spool import Spool
from orchestrator.programs.turns.notes import Notes
from orchestrator.programs.turns.turn import TurnRecord
from orchestrator.record.audit.recorded_event import Recorded

_READ_SECONDS = 60


class TakenSnapshot:
    """A snapshot that can be sent. `skipped` are the first of the names that it leaves out.

    `recorded` is the event that names its digest.
    """

    def __init__(
        self,
        manifest: bytes,
        parts: list[PartFacts],
        skipped: list[str],
        recorded: Recorded,
        spool: Spool,
        held: ExitStack,
    ) -> None:
        self.manifest, self.parts, self.skipped = manifest, parts, skipped
        self.recorded = recorded
        self._spool, self._held = spool, held

    async def chunks(self) -> AsyncIterator[bytes]:
        """The archive. Raises: OSError, TimeoutError."""
        yield head(self.manifest)
        for part in self.parts:
            yield header(part.name, part.size)
            offset = 0
            while offset < part.size:
                data = await bounded(partial(self._spool.read, part.name, offset), _READ_SECONDS)
                offset += len(data)
                yield data
            yield padding(part.size)
        yield END

    def close(self) -> None:
        """Releases its files and the key's place."""
        self._spool.close()
        self._held.close()


class ReceivedSnapshot:
    """A snapshot that has arrived; it is complete once `ArchiveReader.finish` has returned."""

    def __init__(self, spool: Spool, held: ExitStack) -> None:
        self.spool, self._held = spool, held
        self.sha256 = ""
        self.manifest_bytes = 0
        self.turns: list[TurnRecord] = []
        self.notes = Notes()
        self._manifest: SnapshotForm | None = None

    def learn(self, data: bytes, manifest: SnapshotForm) -> None:
        """Takes the manifest once it has arrived. It may be long: call this in a thread."""
        self.sha256, self.manifest_bytes = manifests.sha256(data), len(data)
        self.turns, self.notes = manifest.records(), manifests.read_notes(manifest.notes)
        self._manifest = manifest

    @property
    def manifest(self) -> SnapshotForm:
        """The manifest."""
        assert self._manifest is not None  # noqa: S101 - a complete one has it
        return self._manifest

    def close(self) -> None:
        """Releases its files and the key's place; may be repeated."""
        self.spool.close()
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
