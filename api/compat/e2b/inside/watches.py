"""Watches of directories: as streams, and as watchers that are asked from time to time."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import ExitStack
from functools import partial

from api.compat.e2b.inside.access import Inside
from api.compat.e2b.inside.changes import Changes, FileEvent
from api.compat.e2b.inside.entries import entry_info
from api.compat.e2b.inside.messages import Watch, Watcher
from api.compat.e2b.inside.paths import absolute
from api.compat.e2b.inside.rpc import Answer, Answers, answering, keepalive_of, paced, unary
from api.compat.e2b.inside.stats import stat
from api.compat.e2b.inside.uploads import Uploads
from api.compat.protocol import Route
from api.operations.file_trees import watch_files
from api.shape.answers import Event
from api.shape.context import Work
from api.shape.objects import validated
from orchestrator.ground.errors import (
    ConflictError,
    NotFoundError,
    PaddockError,
    SandboxUnavailableError,
    ValidationError,
)
from orchestrator.state.session import Session
from orchestrator.work.files.file_trees import FileWatch
from paddock.contract.file_trees import FileChange, WatchEnded, WatchQuery, WatchStarted

_PATH = "/filesystem.Filesystem/"
_KEEPALIVE: Answer = {"keepalive": {}}
# A watcher that nobody asks for so long is removed.
_IDLE_SECONDS = 600.0
# The pages of changes that one question reads.
_MOST_PAGES = 64


class _Open:
    """A watcher: an open watch, and what its changes were translated with."""

    def __init__(
        self,
        session: Session,
        watch: FileWatch,
        changes: Changes,
        held: ExitStack,
        *,
        entries: bool,
    ) -> None:
        self.session, self.watch, self.changes = session, watch, changes
        self.held, self.entries = held, entries
        self.asked = asyncio.Lock()
        self.idle: asyncio.TimerHandle | None = None


class Watchers:
    """The open watchers, by their ids.

    Each ends when it is removed or idle, with its session, or with the credential that opened it.

    Nothing reads a watch between two questions: the kernel's queue holds what happens, and is
    bounded.
    """

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    def add(self, opened: _Open, work: Work, allowed: Callable[[], bool]) -> str:
        """Keeps a watcher while it is `allowed`; returns its id."""
        watcher_id = f"w{secrets.token_hex(8)}"
        self._open[watcher_id] = opened
        over = opened.session.over

        def end(_: object = None) -> None:
            self.remove(watcher_id, work)

        over.add_done_callback(end)
        opened.held.callback(over.remove_done_callback, end)
        opened.held.enter_context(work.holding(allowed, end))
        self._rest(watcher_id, opened, work)
        return watcher_id

    def find(self, session: Session, watcher_id: str, work: Work) -> _Open:
        """A watcher of the session, which is not idle now. Raises: NotFoundError."""
        opened = self._open.get(watcher_id)
        if opened is None or opened.session is not session:
            raise NotFoundError(f"watcher {watcher_id[:64]} not found")
        self._rest(watcher_id, opened, work)
        return opened

    def _rest(self, watcher_id: str, opened: _Open, work: Work) -> None:
        if opened.idle is not None:
            opened.idle.cancel()
        loop = asyncio.get_running_loop()
        opened.idle = loop.call_later(_IDLE_SECONDS, self.remove, watcher_id, work)

    def remove(self, watcher_id: str, work: Work) -> None:
        """Ends a watcher; does nothing when repeated."""
        opened = self._open.pop(watcher_id, None)
        if opened is None:
            return
        if opened.idle is not None:
            opened.idle.cancel()
        opened.held.close()
        work.detach(opened.watch.close())


async def _create(inside: Inside, given: Watch) -> Answer:
    path = await _directory(inside, given.path)
    context = inside.context
    with ExitStack() as held:
        held.enter_context(context.streaming("events", inside.session))
        async with inside.kept():
            watch = await context.work.complete(
                inside.plane.file_trees.watch(
                    context.principal, inside.session, path, recursive=given.recursive
                ),
                lambda opened: context.work.detach(opened.close()),
            )
        changes = _changes(inside, path)
        kept = held.pop_all()
    opened = _Open(inside.session, watch, changes, kept, entries=given.include_entry)
    return {"watcherId": context.kept.of(Watchers).add(opened, context.work, context.allowed)}


async def _events(inside: Inside, given: Watcher) -> Answer:
    watchers, work = inside.context.kept.of(Watchers), inside.context.work
    opened = watchers.find(inside.session, given.watcher_id, work)
    found: list[FileEvent] = []
    async with opened.asked:
        try:
            for _ in range(_MOST_PAGES):
                changes = await work.complete(opened.watch.next(0))
                for change in changes:
                    shown = FileChange.model_validate(change._asdict())
                    found += opened.changes.take(shown)
                if not changes or opened.watch.ended:
                    break
        except (ConflictError, NotFoundError):
            watchers.remove(given.watcher_id, work)
            raise NotFoundError(f"watcher {given.watcher_id[:64]} not found") from None
    return {"events": await _shown(inside, found, entries=opened.entries)}


async def _remove(inside: Inside, given: Watcher) -> Answer:
    watchers, work = inside.context.kept.of(Watchers), inside.context.work
    watchers.find(inside.session, given.watcher_id, work)
    watchers.remove(given.watcher_id, work)
    return {}


async def _watch(inside: Inside, given: Watch, limit: float | None) -> Answers:
    path = await _directory(inside, given.path)
    answers = _followed(inside, path, given)
    async for each in paced(answers, _KEEPALIVE, keepalive_of(inside.call.request), limit):
        yield each


async def _followed(inside: Inside, path: str, given: Watch) -> Answers:
    query = validated(WatchQuery, {"path": path, "recursive": str(given.recursive).lower()})
    async with inside.following(watch_files, query=query) as events:
        changes = _changes(inside, path)
        async for each in _answers(inside, events, changes, given):
            yield each


def _changes(inside: Inside, path: str) -> Changes:
    """What translates the changes of a directory."""
    number = inside.context.kept.of(Uploads).number
    uploaded = partial(number, inside.session.key)
    return Changes(absolute(path, inside.workspace), inside.workspace, uploaded)


async def _answers(
    inside: Inside, events: AsyncGenerator[Event | None], changes: Changes, given: Watch
) -> Answers:
    async for event in events:
        match None if event is None else event.data:
            case WatchStarted():
                yield {"start": {}}
            case FileChange() as change:
                told = changes.take(change)
                for shown in await _shown(inside, told, entries=given.include_entry):
                    yield {"filesystem": shown}
            case WatchEnded(reason=reason):
                raise SandboxUnavailableError(f"the watch has ended: {reason}")
            case _:
                continue


async def _directory(inside: Inside, given: str) -> str:
    """The path of a directory. Raises: NotFoundError, ValidationError."""
    path = inside.path(given)
    found = await stat(inside, path)
    if found.type not in ("directory", "symlink"):
        raise ValidationError(f"path is not a directory: {given}", field="path")
    return path


async def _shown(inside: Inside, events: Sequence[FileEvent], *, entries: bool) -> list[Answer]:
    known: dict[str, Answer | None] = {}
    shown = []
    for event in events:
        told: Answer = {"name": event.name, "type": event.type}
        if entries:
            if event.path not in known:
                known[event.path] = await _entry(inside, event.path)
            if known[event.path] is not None:
                told["entry"] = known[event.path]
        shown.append(told)
    return shown


async def _entry(inside: Inside, path: str) -> Answer | None:
    """What is at a path now; None if that is nothing."""
    try:
        found = await stat(inside, path)
    except PaddockError:
        return None
    return entry_info(found, inside.workspace, owner=inside.user)


WATCH_ROUTES: tuple[Route, ...] = (
    answering(_PATH + "WatchDir", Watch, _watch),
    unary(_PATH + "CreateWatcher", Watch, _create),
    unary(_PATH + "GetWatcherEvents", Watcher, _events),
    unary(_PATH + "RemoveWatcher", Watcher, _remove, stops=True),
)
