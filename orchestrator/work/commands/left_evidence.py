"""Removes unrecorded evidence that a control plane left when it was killed.

It can't be found and was not charged to anyone. Directories are `<evidence>/<session key>/<id>`,
for commands and for terminals.
"""

import logging
import os
import sqlite3
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from orchestrator.ground.store.database import Database
from orchestrator.ground.threads import bounded

log = logging.getLogger(__name__)

_DISK_SECONDS = 60.0
# Directories looked up in one read, so that others can read in between.
_MOST_AT_ONCE = 1000

# A damaged event counts, because its evidence may show what was in it. A chain without events is
# archived, and its evidence belongs to the archive.
_ON_RECORD = """
    SELECT 1 FROM terminals WHERE id = :id AND session_key = :key
    UNION ALL
    SELECT 1 FROM events WHERE session_key = :key AND command_id = :id
        AND operation = 'command.evidence' AND CASE WHEN json_valid(body)
        THEN json_extract(body, '$.result.output_hash') IS NOT NULL ELSE TRUE END
    UNION ALL
    SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM events WHERE session_key = :key)
    LIMIT 1
"""


async def remove_left(database: Database, evidence: Path) -> int:
    """Removes it, and returns the number of affected commands and terminals.

    Call it before any of them begins. The next start removes what this one can't. Raises:
    StoreError.
    """
    try:
        found = await bounded(partial(_directories, evidence), _DISK_SECONDS)
        left = list[Path]()
        for start in range(0, len(found), _MOST_AT_ONCE):
            some = found[start : start + _MOST_AT_ONCE]
            left += await database.read(partial(_not_on_record, directories=some))
        return await bounded(partial(_remove_all, left), _DISK_SECONDS)
    except TimeoutError:
        log.error("unrecorded evidence could not be removed: the disk does not answer")
    except OSError as error:
        log.error("unrecorded evidence could not be removed: %s", error)
    return 0


def _directories(evidence: Path) -> list[Path]:
    if not evidence.is_dir():
        return []
    sessions = [Path(entry) for entry in os.scandir(evidence) if entry.is_dir()]
    return [
        Path(entry)
        for session in sessions
        for entry in os.scandir(session)
        if entry.is_dir(follow_symlinks=False)
    ]


def _not_on_record(connection: sqlite3.Connection, directories: Iterable[Path]) -> list[Path]:
    def on_record(directory: Path) -> bool:
        wanted = {"key": directory.parent.name, "id": directory.name}
        return connection.execute(_ON_RECORD, wanted).fetchone() is not None

    return [directory for directory in directories if not on_record(directory)]


def _remove_all(directories: Iterable[Path]) -> int:
    removed = 0
    for directory in directories:
        try:
            _remove(directory)
            log.warning("%s was removed, because it is not recorded", directory)
            removed += 1
        except OSError as error:
            log.error("%s is not recorded and can't be removed: %s", directory, error)
    return removed


def _remove(directory: Path) -> None:
    """Also removes its additional names. It contains only files; anything else stays."""
    for path in directory.parent.iterdir():
        if path.is_symlink() and os.readlink(path) == directory.name:
            path.unlink()
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()
