"""Builds that clients have asked for: where each stands, what it has logged, what was uploaded.

They are in memory only: a build that a restart interrupts is gone, and its session ends by its
time-out. What is complete is a snapshot.
"""

import asyncio
import hmac
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

from api.compat.spool import Spool
from orchestrator.ground.errors import (
    ConflictError,
    NotFoundError,
    RateLimitedError,
    UnauthorizedError,
)
from orchestrator.ground.events import now
from orchestrator.ground.limits import RETRY_SECONDS

State = Literal["waiting", "building", "ready", "error"]
# Of one key.
MOST_BUILDS = 16
_MOST_ENTRIES = 2000
_MOST_TEXT = 4096
_MOST_UPLOADS = 64

Doing = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class Uploaded:
    """Files of one copy: the secret of their address, and what was received."""

    token: str
    spool: Spool | None = None


@dataclass(slots=True)
class Build:
    """One build of a key's template. `credential` is what its client has shown."""

    account: str
    name: str
    tags: tuple[str, ...]
    credential: str
    id: str = field(default_factory=lambda: str(uuid4()))
    state: State = "waiting"
    failed_step: str | None = None
    failure: str | None = None
    # How it is carried out, once it is to begin.
    begun: asyncio.Future[Doing] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    uploads: dict[str, Uploaded] = field(default_factory=dict)
    _entries: deque[dict[str, Any]] = field(default_factory=deque)
    _dropped: int = 0

    def begin(self, doing: Doing) -> None:
        """Lets it begin. Raises: ConflictError if it did already."""
        if self.state != "waiting" or self.begun.done():
            raise ConflictError(f"the build {self.id} was begun already")
        self.state = "building"
        self.begun.set_result(doing)

    def fail(self, why: str, step: str | None = None) -> None:
        """It has failed."""
        self.state, self.failure, self.failed_step = "error", why, step
        self.log(why, "error", step)

    def log(self, text: str, level: str = "info", step: str | None = None) -> None:
        """Adds lines to the log, which keeps the latest ones."""
        for line in _lines(text):
            entry = {"timestamp": now(), "message": line, "level": level}
            self._entries.append(entry if step is None else {**entry, "step": step})
            if len(self._entries) > _MOST_ENTRIES:
                self._entries.popleft()
                self._dropped += 1

    def entries(self, offset: int, limit: int) -> list[dict[str, Any]]:
        """Entries of the log, numbered from 0 on, as far as they are kept."""
        begin = max(0, offset - self._dropped)
        return [self._entries[n] for n in range(begin, min(begin + limit, len(self._entries)))]

    def upload(self, files: str) -> Uploaded:
        """Where files of that digest are received. Raises: RateLimitedError."""
        found = self.uploads.get(files)
        if found is None:
            if len(self.uploads) >= _MOST_UPLOADS:
                raise RateLimitedError(
                    f"a build has at most {_MOST_UPLOADS} copies: copy a directory instead",
                    limit="builds",
                    retry_after=RETRY_SECONDS,
                )
            found = self.uploads[files] = Uploaded(secrets.token_urlsafe(32))
        return found

    async def release(self) -> None:
        """Forgets what was uploaded."""
        uploads, self.uploads = self.uploads, {}
        for each in uploads.values():
            if each.spool is not None:
                await each.spool.close()


def _lines(text: str) -> Iterator[str]:
    """At most a few thousand characters of each line, of at most as many lines as a log has."""
    for number, line in enumerate(text.splitlines()):
        if number == _MOST_ENTRIES:
            return
        yield line[:_MOST_TEXT]


class Builds:
    """All builds of this process: a few of each key, of which the oldest give way."""

    def __init__(self) -> None:
        self._by_id: dict[str, Build] = {}

    def add(self, build: Build) -> None:
        """Keeps a build. Raises: RateLimitedError if too many of the key's are going on."""
        own = [each for each in self._by_id.values() if each.account == build.account]
        if len(own) >= MOST_BUILDS:
            over = next((each for each in own if each.state != "building"), None)
            if over is None:
                raise RateLimitedError(
                    f"{MOST_BUILDS} templates are being built for this key: wait for one",
                    limit="builds",
                    retry_after=RETRY_SECONDS,
                )
            del self._by_id[over.id]
            over.begun.cancel()
        self._by_id[build.id] = build

    def find(self, account: str, name: str, build_id: str) -> Build:
        """The key's build. Raises: NotFoundError."""
        found = self._by_id.get(build_id)
        if found is None or (found.account, found.name) != (account, name):
            raise NotFoundError(f"there is no build {build_id[:64]} of the template {name}")
        return found

    def latest(self, account: str, name: str) -> Build:
        """The key's latest build of the template that waits for files. Raises: NotFoundError."""
        for each in reversed(self._by_id.values()):
            if (each.account, each.name, each.state) == (account, name, "waiting"):
                return each
        raise NotFoundError(f"no build of the template {name} waits for files: request one first")

    def receiving(self, name: str, files: str, token: str) -> tuple[Build, Uploaded]:
        """The build whose address of an upload has that secret. Raises: UnauthorizedError."""
        given = token.encode("utf-8", "surrogatepass")
        for each in self._by_id.values():
            upload = each.uploads.get(files)
            if upload is None or each.name != name:
                continue
            if hmac.compare_digest(upload.token.encode(), given):
                return each, upload
        raise UnauthorizedError("this address of an upload is not, or no longer, valid")
