"""Watches a directory and those below it. Runs in a file worker.

The kernel's queue of events is bounded, and is read only when the next changes are asked for. So a
reader that is slow costs no memory: it is told that changes are missing.
"""

import os
import re
import select
import time
from collections import deque
from typing import Any, NamedTuple

from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.files.names import shown
from sandbox_agent.files import inotify
from sandbox_agent.files.inotify import Inotify, KernelEvent
from sandbox_agent.files.places import Place, open_in

MOST_DIRECTORIES = 8192
# Changes that wait here; a tree that was moved in may have more.
_MOST_WAITING = 8192
# The second half of a rename follows the first one at once.
_HALF_MS = 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
# Names under which new content waits for its place.
_OURS = re.compile(r"\.paddock-[0-9a-f]{16}")
# How the kernel calls a file without a name, in which new content waits.
_NAMELESS = re.compile(r"#[0-9]+")
_OVERFLOW = "overflow"


class Change(NamedTuple):
    """What happened to a path below the watched directory, itself `.`; `source` is for moves."""

    kind: str
    path: str
    directory: bool = False
    source: str | None = None


class Watching:
    """One watch; the constructor has put it into effect when it returns."""

    def __init__(self, place: Place, path: str, *, recursive: bool) -> None:
        """Raises: OSError; AgentError too_large for more directories than can be watched."""
        self._place, self._path, self._recursive = place, path.rstrip("/"), recursive
        self._changes: deque[Change] = deque()
        self._latest: dict[str, Change] = {}
        # The first half of a rename.
        self._moving: tuple[int, str, bool] | None = None
        # What a scan has told already, and the queue tells once more.
        self._scanned: set[str] = set()
        self.ended = False
        self._kernel = Inotify()
        self._begin()
        if self._changes:
            text = f"these are more than {MOST_DIRECTORIES} directories, or than the host can watch"
            raise AgentError("too_large", text)

    def _begin(self) -> None:
        # The paths of the watched directories, below the first one.
        self._paths: dict[int, str] = {}
        self._follow("", tells=False)

    def next(self, agent: int, limit: int, wait_ms: int) -> dict[str, Any]:
        """The next changes, after at most this time; earlier if something arrives from `agent`."""
        until = time.monotonic() + wait_ms / 1000
        while not self._changes and not self.ended:
            left = max(0.0, until - time.monotonic())
            ready, _, _ = select.select([self._kernel.fd, agent], [], [], left)
            if self._kernel.fd in ready:
                self._read()
                if not self._changes:
                    continue
            if agent in ready or not left:
                break
        else:
            self._read()  # what has come meanwhile, without waiting
        count = min(limit, len(self._changes))
        told = [self._changes.popleft() for _ in range(count)]
        for change in told:
            self._latest.pop(change.path, None)
        ended = self.ended and not self._changes
        return {"changes": [self._members(change) for change in told], "ended": ended}

    def _members(self, change: Change) -> dict[str, Any]:
        source = None if change.source is None else self._shown(change.source)
        return change._replace(path=self._shown(change.path), source=source)._asdict()

    def _shown(self, path: str) -> str:
        """The path as a listing has it."""
        full = self._full(path)
        return shown(f"/{full.lstrip('/')}" if self._place.image else full)

    def _full(self, path: str) -> str:
        if path in ("", "."):
            return self._path or "."
        return path if self._path in ("", ".") else f"{self._path}/{path}"

    def _read(self) -> None:
        """Takes events of the kernel, as many as there is room for."""
        while len(self._changes) < _MOST_WAITING and not self.ended:
            events = list(self._kernel.read())
            if not events and self._moving is not None and self._half_comes():
                continue
            for event in events:
                self._take(event)
            if not events:
                self._left()
                self._scanned.clear()
                break

    def _half_comes(self) -> bool:
        return bool(select.select([self._kernel.fd], [], [], _HALF_MS / 1000)[0])

    def _take(self, event: KernelEvent) -> None:
        if event.mask & inotify.OVERFLOW:
            self._start_again()
            return
        half = event.mask & inotify.MOVED_TO and self._moving and event.cookie == self._moving[0]
        if not half:
            self._left()
        directory = self._paths.get(event.watch)
        if directory is None:
            return
        if event.mask & inotify.IGNORED:
            self._drop(event.watch)
            return
        if not event.name:
            if not directory and event.mask & (inotify.DELETE_SELF | inotify.MOVE_SELF):
                self._tell(Change("delete", ".", directory=True))
                self.ended = True
            return
        path = f"{directory}/{event.name}" if directory else event.name
        if event.mask & inotify.MOVED_TO:
            self._arrived(event, path)
        elif event.mask & inotify.MOVED_FROM:
            self._moving = event.cookie, path, event.on_directory
        elif not _OURS.fullmatch(event.name):
            self._changed(event, path)

    def _changed(self, event: KernelEvent, path: str) -> None:
        """Something that is not a rename."""
        is_directory = event.on_directory
        if event.mask & inotify.CREATE:
            self._appeared(path, is_directory)
        elif event.mask & inotify.DELETE:
            self._tell(Change("delete", path, is_directory))
        elif event.mask & (inotify.MODIFY | inotify.CLOSE_WRITE):
            self._tell(Change("write", path, is_directory))
        elif event.mask & inotify.ATTRIB and not _NAMELESS.fullmatch(event.name):
            self._tell(Change("attributes", path, is_directory))

    def _appeared(self, path: str, is_directory: bool) -> None:
        """A new name; what is in a new directory already is told, too."""
        if path in self._scanned:
            self._scanned.discard(path)
            return
        self._tell(Change("create", path, is_directory))
        if is_directory and self._recursive:
            self._follow(path, tells=True)

    def _arrived(self, event: KernelEvent, path: str) -> None:
        """The second half of a rename, or something from elsewhere."""
        moving, self._moving = self._moving, None
        if _OURS.fullmatch(event.name):
            if moving is not None:
                self._tell(Change("delete", moving[1], moving[2]))
                self._unfollow(moving[1])
            return
        if moving is None:
            self._appeared(path, event.on_directory)
        elif _OURS.fullmatch(moving[1].rpartition("/")[2]):
            # New content that waited under a name of ours takes its place.
            if event.on_directory:
                self._appeared(path, True)
            else:
                self._tell(Change("write", path))
        else:
            self._tell(Change("move", path, event.on_directory, moving[1]))
            if event.on_directory:
                self._renamed(moving[1], path)

    def _left(self) -> None:
        """The first half of a rename that has no second one: it is elsewhere now."""
        moving, self._moving = self._moving, None
        if moving is not None and not _OURS.fullmatch(moving[1].rpartition("/")[2]):
            self._tell(Change("delete", moving[1], moving[2]))
            self._unfollow(moving[1])

    def _tell(self, change: Change) -> None:
        """Notes a change, unless the latest untold one of its path is the same."""
        if self._latest.get(change.path) == change:
            return
        if len(self._changes) >= 2 * _MOST_WAITING:
            self._changes.clear()
            self._latest.clear()
            change = Change(_OVERFLOW, ".", directory=True)
        self._latest[change.path] = change
        self._changes.append(change)

    def _start_again(self) -> None:
        """Events are lost, so what is watched is found anew."""
        self._kernel.close()
        self._kernel = Inotify()
        self._moving = None
        self._scanned.clear()
        self._tell(Change(_OVERFLOW, ".", directory=True))
        try:
            self._begin()
        except (OSError, AgentError):
            self.ended = True

    def _follow(self, path: str, *, tells: bool) -> None:
        """Watches a directory and those below it; with `tells`, notes all that is in them."""
        waiting = deque([path])
        while waiting:
            directory = waiting.popleft()
            below = self._scan(directory, first=directory == "")
            for name, is_directory in below:
                inner = f"{directory}/{name}" if directory else name
                if tells:
                    self._scanned.add(inner)
                    self._tell(Change("create", inner, is_directory))
                if is_directory and self._recursive:
                    waiting.append(inner)

    def _scan(self, path: str, *, first: bool) -> list[tuple[str, bool]]:
        """Watches one directory; the names in it. Raises: OSError, AgentError for the first one."""
        try:
            flags = _DIRECTORY if first else _DIRECTORY | os.O_NOFOLLOW
            fd = open_in(self._place, self._full(path), flags)
        except (OSError, AgentError):
            if first:
                raise
            return []
        try:
            if len(self._paths) >= MOST_DIRECTORIES:
                self._tell(Change(_OVERFLOW, ".", directory=True))
                return []
            watch = self._kernel.watch(fd)
            self._paths[watch] = path
            with os.scandir(fd) as names:
                return [
                    (each.name, each.is_dir(follow_symlinks=False))
                    for each in names
                    if not _OURS.fullmatch(each.name)
                ]
        except OSError as error:
            if first:
                raise
            if inotify.is_exhausted(error):
                self._tell(Change(_OVERFLOW, ".", directory=True))
            return []
        finally:
            os.close(fd)

    def _drop(self, watch: int) -> None:
        self._paths.pop(watch, None)

    def _below(self, path: str) -> list[tuple[int, str]]:
        return [
            (watch, each)
            for watch, each in self._paths.items()
            if each == path or each.startswith(path + "/")
        ]

    def _unfollow(self, path: str) -> None:
        for watch, _ in self._below(path):
            self._kernel.forget(watch)
            self._drop(watch)

    def _renamed(self, source: str, path: str) -> None:
        """The watches of a directory stay when it is renamed."""
        found = self._below(source)
        if not found and self._recursive:
            self._follow(path, tells=True)  # it was renamed before it was looked at
        for watch, old in found:
            self._paths[watch] = path + old.removeprefix(source)
