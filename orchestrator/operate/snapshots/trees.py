"""Asks the helper that packs and unpacks trees."""

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.ground.errors import ConflictError, PaddockError, TooLargeError
from orchestrator.host.workspace.helper import Helper, HelperError
from orchestrator.host.workspace.staging_area import StagingArea
from orchestrator.operate.snapshots.archive import MARKS, STAGED, WORKSPACE, SnapshotError
from orchestrator.operate.snapshots.spool import Spool

# Only its name is here: the control plane must not load it, because it uses the agent's code.
_MODULE = "orchestrator.operate.snapshots.helper"
SECONDS = 600
# Room for headers of entries, besides the contents of files.
_HEADERS = 512 * 1024 * 1024


class SnapshotFailedError(PaddockError):
    """A snapshot can't be taken or restored now. The call may be repeated."""

    code = "sandbox_unavailable"


class TreeHelper:
    """Packs and unpacks the files of one workspace, whose user is `uid`. Methods block.

    `most` limits the size of the files.
    """

    def __init__(self, spool: Spool, data: Path, uid: int, most: int) -> None:
        self._spool, self._data, self._uid, self._most = spool, data, uid, most

    def pack(self, area: StagingArea | None) -> list[str]:
        """Packs the workspace and what is staged in `area`; returns the names that were left out.

        Raises: SnapshotFailedError, ConflictError, TooLargeError.
        """
        most = min(self._most + _HEADERS, self._spool.room())
        left_out: list[str] = self._run(
            "pack", most, {"tree": self._data}, {"archive": self._spool.make(WORKSPACE)}
        )["skipped"]
        if area is not None:
            places = {"tree": area.upper, "lower": self._data, "area": area.commit}
            made = {"archive": self._spool.make(STAGED), "marks": self._spool.make(MARKS)}
            left_out += self._run("pack", most, places, made)["skipped"]
        return left_out

    def unpack(self) -> None:
        """Unpacks the workspace. Raises: SnapshotError naming the entry; TooLargeError."""
        self._run(
            "unpack", self._most, {"tree": self._data}, {"archive": self._spool.open(WORKSPACE)}
        )

    def unpack_staged(self, area: StagingArea) -> None:
        """Unpacks what is staged, into a new area. Raises: likewise."""
        opened = {"archive": self._spool.open(STAGED), "marks": self._spool.open(MARKS)}
        self._run("unpack", self._most, {"tree": area.upper}, opened)

    def _run(
        self, action: str, most: int, places: Mapping[str, Path], files: Mapping[str, int]
    ) -> dict[str, Any]:
        packer = Helper(_MODULE, self._uid, SECONDS, most)
        try:
            answer = packer.ask({"action": action, "most": most}, places, files)
        except HelperError:
            raise SnapshotFailedError("its files can't be used in time: try again") from None
        except OSError as error:
            raise SnapshotFailedError(f"its files can't be used: {error.strerror}") from error
        if "error" in answer:
            part = STAGED if "marks" in files else WORKSPACE
            raise _failure(action, part, answer["kind"], str(answer["error"])[:500])
        return answer


def _failure(action: str, part: str, kind: str, message: str) -> PaddockError:
    too_large = kind == "too_large" or message in (
        os.strerror(errno.EFBIG),
        os.strerror(errno.ENOSPC),
        os.strerror(errno.EDQUOT),
    )
    if too_large:
        return TooLargeError(f"{part}: {message}", field=part)
    if action == "pack":
        return ConflictError(message) if kind == "conflict" else SnapshotFailedError(message)
    if kind in ("validation_error", "conflict", "permission_denied"):
        return SnapshotError(f"{part}: {message}", field=part)
    return SnapshotFailedError(f"{part}: {message}")
