"""`filesystem.Filesystem`: what is in the workspace, and changes of it."""

import asyncio
import posixpath

from api.compat.e2b.inside.access import Inside
from api.compat.e2b.inside.codes import ExistsError
from api.compat.e2b.inside.entries import ATTRIBUTES, entry_info, in_order
from api.compat.e2b.inside.messages import ListDir, Move, Path
from api.compat.e2b.inside.paths import target_of
from api.compat.e2b.inside.rpc import Answer, unary
from api.compat.e2b.inside.stats import stat
from api.compat.e2b.inside.watches import WATCH_ROUTES
from api.compat.protocol import Route
from api.operations.files import delete_file, make_directory, move_file
from api.shape.objects import validated
from orchestrator.ground.errors import (
    ConflictError,
    NotFoundError,
    PaddockError,
    ValidationError,
)
from orchestrator.work.files.file_entries import FileEntry
from paddock.contract.fields import MOST_DEPTH
from paddock.contract.files import DeleteQuery, MoveBody, PathBody

_PATH = "/filesystem.Filesystem/"
# Links of a chain, and those of one list, whose targets are looked at.
_MOST_LINKS = 8
_MOST_FOLLOWED = 64
# Entries that are made between two turns of the event loop.
_AT_ONCE = 256


async def entry(inside: Inside, path: str) -> Answer:
    """The `EntryInfo` of a path in the form of this API. Raises: as `stat`."""
    return await _info(inside, await stat(inside, path))


async def _info(inside: Inside, found: FileEntry) -> Answer:
    leads_to = None
    if found.type == "symlink":
        leads_to = await _type_behind(inside, found)
    return entry_info(found, inside.workspace, leads_to=leads_to, owner=inside.user)


async def _type_behind(inside: Inside, found: FileEntry) -> str | None:
    """The type of what a link leads to; None if that is nothing, or nothing the caller may see."""
    for _ in range(_MOST_LINKS):
        target = target_of(found, inside.workspace)
        if target is None:
            return found.type
        try:
            found = await stat(inside, target)
        except PaddockError:
            return None
    return None


async def _stat(inside: Inside, given: Path) -> Answer:
    return {"entry": await entry(inside, inside.path(given.path))}


async def _list_dir(inside: Inside, given: ListDir) -> Answer:
    if given.depth < 0 or given.depth >= 2**31:
        raise ValidationError("depth should be at least 1", field="depth")
    depth = min(given.depth or 1, MOST_DEPTH)
    path = inside.path(given.path)
    async with inside.kept():
        listed = await inside.plane.files.list(
            inside.context.principal, inside.session, path, depth, attributes=ATTRIBUTES
        )
    shown, followed = [], 0
    for number, each in enumerate(in_order(listed.entries), 1):
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)  # others are served
        if each.type == "symlink" and followed < _MOST_FOLLOWED:
            followed += 1
            shown.append(await _info(inside, each))
        else:
            shown.append(entry_info(each, inside.workspace, owner=inside.user))
    return {"entries": shown}


async def _make_dir(inside: Inside, given: Path) -> Answer:
    path = inside.path(given.path)
    try:
        found = await stat(inside, path)
    except NotFoundError:
        await inside.done(make_directory, body=validated(PathBody, {"path": path}))
        return {"entry": await entry(inside, path)}
    if found.type == "directory":
        raise ExistsError(f"directory already exists: {given.path}")
    raise ConflictError(f"path already exists but it is not a directory: {given.path}")


async def _move(inside: Inside, given: Move) -> Answer:
    source, destination = inside.path(given.source), inside.path(given.destination)
    body = validated(MoveBody, {"source": source, "destination": destination})
    try:
        await inside.done(move_file, body=body)
    except NotFoundError:
        # Directories above the destination are made, if it is these that are missing.
        await stat(inside, source)
        parent = posixpath.dirname(destination)
        if parent in ("", "/"):
            raise
        await inside.done(make_directory, body=validated(PathBody, {"path": parent}))
        await inside.done(move_file, body=body)
    return {"entry": await entry(inside, destination)}


async def _remove(inside: Inside, given: Path) -> Answer:
    query = validated(DeleteQuery, {"path": inside.path(given.path), "recursive": "true"})
    try:
        await inside.done(delete_file, query=query)
    except NotFoundError:
        return {}
    return {}


FILESYSTEM_ROUTES: tuple[Route, ...] = (
    unary(_PATH + "Stat", Path, _stat),
    unary(_PATH + "ListDir", ListDir, _list_dir),
    unary(_PATH + "MakeDir", Path, _make_dir),
    unary(_PATH + "Move", Move, _move),
    unary(_PATH + "Remove", Path, _remove),
    *WATCH_ROUTES,
)
