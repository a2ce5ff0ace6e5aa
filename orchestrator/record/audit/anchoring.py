"""Anchors the heads of chains outside the ledger at an interval: in a file, or with a POST.

An anchor is stored before it is delivered, and delivery is repeated until it succeeds. The
delivered anchors therefore form one chain, even if the process is killed in between.
"""

import asyncio
import logging
import os
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.events import now
from orchestrator.ground.http_post import FAILURES, post
from orchestrator.ground.store import directories
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.database_file import StoreError
from orchestrator.ground.tasks import Rounds, Supervised, TaskName, Tasks
from orchestrator.ground.threads import Threads
from orchestrator.settings.groups.places import AnchorSettings
from paddock.audit import anchors
from paddock.audit.anchors import ChainHead

log = logging.getLogger(__name__)

_APPEND_SECONDS = 30.0
KEY_FILE, PUBLIC_FILE = "anchor.key", "anchor.pub"
_POST_SECONDS = 30.0
# The time for one anchor: a file, a POST, and the database's reads and writes.
_ROUND_SECONDS = 120.0
# Events per read, so that others can read in between.
_PORTION = 20_000
_HEADS = """
    SELECT session_key, session_id, max(seq), hash,
           (SELECT incarnation FROM sessions WHERE key = session_key)
    FROM events WHERE events.id > ? AND events.id <= ?
    GROUP BY session_key ORDER BY max(events.id)
"""


class Anchoring:
    """Works in the background, from `start` to `close`. A failure is logged and retried."""

    def __init__(
        self,
        settings: AnchorSettings,
        database: Database,
        key: Ed25519PrivateKey,
        instance: str,
    ) -> None:
        self._settings = settings
        self._database = database
        self._key = key
        self._instance = instance
        self._threads = Threads("the file of anchors", 1)
        self._rounds = Rounds(_ROUND_SECONDS)
        self._task: Supervised | None = None

    def start(self, tasks: Tasks) -> None:
        """Begins."""
        self._task = tasks.start(TaskName.ANCHORING, self._run, rounds=self._rounds)

    async def close(self) -> None:
        """Stops; the next start delivers the rest."""
        if self._task is not None:
            await self._task.close()

    async def anchor(self) -> bool:
        """Delivers a waiting anchor, else a new one; False if there was nothing to anchor.

        Raises: OSError and others of FAILURES, StoreError.
        """
        pending = await self._database.read(_pending)
        if pending is None:
            pending = await self._make()
        if pending is None:
            return False
        if self._settings.file is not None:
            append = partial(_append, self._settings.file, pending)
            await self._threads.call(append, _APPEND_SECONDS)
        if self._settings.url is not None:
            async with asyncio.timeout(_POST_SECONDS):
                status = await post(self._settings.url, {}, pending.encode() + b"\n")
            if not 200 <= status < 300:
                raise ValueError(f"{self._settings.url}: status {status}")
        await self._database.write(
            lambda connection: connection.execute("UPDATE anchor_state SET pending = NULL").rowcount
        )
        return True

    async def _make(self) -> str | None:
        """Stores and returns the next anchor; None if no chain has grown."""
        position, previous, last = await self._database.read(_state)
        heads: dict[str, ChainHead] = {}
        while position < last and len(heads) < anchors.MOST_HEADS:
            position, found = await self._look(position, last, anchors.MOST_HEADS - len(heads))
            heads |= found
        if not heads:
            return None
        made = anchors.line(self._key, self._instance, now(), heads.values(), previous)
        digest = anchors.digest(made)
        await self._database.write(
            lambda connection: (
                connection.execute(
                    "UPDATE anchor_state SET position = ?, previous = ?, pending = ?",
                    (position, digest, made),
                ).rowcount
            )
        )
        return made

    async def _look(self, after: int, last: int, most: int) -> tuple[int, dict[str, ChainHead]]:
        """The heads in the next portion of events, and the position of its end."""
        until = min(after + _PORTION, last)
        while True:
            rows = await self._database.browse(partial(_heads, after=after, until=until))
            if len(rows) <= most or until == after + 1:
                return until, {row[0]: ChainHead(*row) for row in rows}
            until = after + max(1, (until - after) // 2)

    async def _run(self) -> None:
        while True:
            try:
                more = True
                while more:
                    with self._rounds.round():
                        more = await self.anchor()
            except (*FAILURES, StoreError) as error:
                log.error("heads could not be anchored: %s", str(error) or type(error).__name__)
            await asyncio.sleep(self._settings.interval)


def load_key(settings: AnchorSettings, state_dir: Path) -> Ed25519PrivateKey:
    """The signing key: the settings' PEM file, else one that is created at the first use.

    Its public half is in `anchor.pub` of the state directory. Raises: ConfigError.
    """
    path = settings.key_file or state_dir / KEY_FILE
    try:
        if settings.key_file is None and not path.exists():
            _make_key(path)
        key = load_pem_private_key(path.read_bytes(), None)
        if not isinstance(key, Ed25519PrivateKey):
            raise ConfigError(f"{path}: must be an Ed25519 key")
        (state_dir / PUBLIC_FILE).write_text(anchors.public_key(key) + "\n", encoding="ascii")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (ValueError, TypeError):
        raise ConfigError(f"{path}: must be a private key in PEM, without a password") from None
    return key


def _make_key(path: Path) -> None:
    data = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    directories.write_file(path, data)


def _pending(connection: sqlite3.Connection) -> str | None:
    (pending,) = connection.execute("SELECT pending FROM anchor_state").fetchone()
    return None if pending is None else str(pending)


def _state(connection: sqlite3.Connection) -> tuple[int, str, int]:
    """The last anchored event, the digest of the last anchor, and the last event."""
    position, previous = connection.execute(
        "SELECT position, previous FROM anchor_state"
    ).fetchone()
    (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()
    return position, previous, last


def _heads(connection: sqlite3.Connection, after: int, until: int) -> list[Any]:
    return connection.execute(_HEADS, (after, until)).fetchall()


def _append(path: Path, anchor: str) -> None:
    """Appends a line durably, unless it is already the last one."""
    data = anchor.encode() + b"\n"
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "r+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - len(data)))
        end = file.read(len(data))
        if end == data:
            return
        # A line that a full disk or a kill has cut is completed, or left for verification to
        # report.
        missing = _missing(end, data)
        while missing:
            missing = missing[file.write(missing) :]
        os.fsync(file.fileno())


def _missing(end: bytes, data: bytes) -> bytes:
    """The bytes to write so that the file ends with that line."""
    if not end or end.endswith(b"\n"):
        return data
    begun = end[end.rfind(b"\n") + 1 :]
    return data.removeprefix(begun)
