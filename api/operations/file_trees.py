"""What concerns several files of a workspace at once: searches, patches, copies and watches."""

from collections.abc import AsyncGenerator
from contextlib import ExitStack

from api.shape.access import Access
from api.shape.answers import Event, EventStream
from api.shape.context import Context
from api.shape.operation import SESSION, WORK_ERRORS, Events, operation
from orchestrator.ground.errors import PaddockError
from orchestrator.work.files.file_trees import FileTrees, FileWatch
from orchestrator.work.files.files import Files
from paddock.contract.file_trees import (
    WATCH_EVENTS,
    CopyBody,
    FileChange,
    FileCopied,
    FileMatch,
    FileMatches,
    FileMode,
    FilePatched,
    ModeBody,
    PatchBody,
    PatchedFile,
    SearchQuery,
    WatchEnded,
    WatchQuery,
    WatchStarted,
)

_TAG = "Files"
_FILES = SESSION + "/files"
# A client sees a sign of life after this time, and a lost credential ends a watch.
_WAIT_SECONDS = 10.0


@operation(
    "GET",
    _FILES + "/search",
    Access.WORK,
    tag=_TAG,
    summary="Search the lines of files",
    answers="The lines, in the order of their paths.",
    errors=WORK_ERRORS,
    restores=True,
)
async def search_files(context: Context, file_trees: FileTrees, query: SearchQuery) -> FileMatches:
    """The lines of files that have a text, or match a regular expression.

    A search reads at most 50,000 files, 256 MiB and 10 s. Links are not followed; binary files, and
    the directories of version control below the one that is named, are left out.
    """
    globs = () if query.glob is None else (query.glob,)
    found = await file_trees.search(
        *(context.principal, context.session(), query.path, query.text),
        regex=query.regex,
        ignore_case=query.ignore_case,
        globs=globs,
        limit=query.limit,
    )
    items = [FileMatch(**each._asdict()) for each in found.matches]
    return FileMatches(
        items=items,
        next=None,
        files=found.files,
        skipped=found.skipped,
        truncated=found.truncated,
    )


@operation(
    "POST",
    _FILES + "/patch",
    Access.WORK,
    tag=_TAG,
    summary="Apply a patch",
    answers="What was done to each file.",
    errors=WORK_ERRORS,
    examples={
        "line": {"patch": "--- a/notes.txt\n+++ b/notes.txt\n@@ -1 +1 @@\n-hello\n+hello, world\n"}
    },
    restores=True,
)
async def patch_files(context: Context, file_trees: FileTrees, body: PatchBody) -> FilePatched:
    """Applies a unified diff to files, all or nothing.

    It may change, create, remove, rename and copy files, and change their modes. A hunk's old
    lines must be exactly what the file has, where the hunk says or at the nearest other place. If
    anything does not apply, nothing is changed, and `rejects` names the files, the hunks and the
    reasons. Nor is it if a file is changed by another request meanwhile.
    """
    session = context.session()
    given = context.principal, session, body.path, body.patch
    done = await context.work.complete(file_trees.patch(*given, dry_run=body.dry_run))
    files = [PatchedFile.model_validate(each._asdict()) for each in done]
    return FilePatched(files=files, dry_run=body.dry_run)


@operation(
    "POST",
    _FILES + "/copy",
    Access.WORK,
    tag=_TAG,
    summary="Copy a file or directory",
    answers="What was copied.",
    errors=WORK_ERRORS,
    examples={"directory": {"source": "src", "destination": "backup/src", "parents": True}},
    restores=True,
)
async def copy_file(context: Context, file_trees: FileTrees, body: CopyBody) -> FileCopied:
    """Copies a file, or a directory with all that is in it, as a whole or not at all.

    Permissions and times are kept, and links are copied as links. A file at the destination is
    replaced; a directory is not.
    """
    given = context.principal, context.session(), body.source, body.destination
    copied = await context.work.complete(file_trees.copy(*given, parents=body.parents))
    return FileCopied(source=body.source, destination=body.destination, **copied._asdict())


@operation(
    "POST",
    _FILES + "/chmod",
    Access.WORK,
    tag=_TAG,
    summary="Change permissions",
    answers="The path and its permissions.",
    errors=WORK_ERRORS,
    examples={"executable": {"path": "run.sh", "permissions": "0755"}},
    restores=True,
)
async def change_mode(context: Context, files: Files, body: ModeBody) -> FileMode:
    """Sets the nine permission bits of a file or directory; a link is followed."""
    permissions = int(body.permissions, 8)
    session = context.session()
    await context.work.complete(files.chmod(context.principal, session, body.path, permissions))
    return FileMode(path=body.path, permissions=f"{permissions:04o}")


@operation(
    "GET",
    _FILES + "/events",
    Access.WORK,
    tag=_TAG,
    summary="Watch a directory",
    answers="The changes as they happen.",
    errors=(*WORK_ERRORS, "too_large"),
    restores=True,
    events=Events(WATCH_EVENTS, None),
)
async def watch_files(context: Context, file_trees: FileTrees, query: WatchQuery) -> EventStream:
    """Changes below a directory, from the event `ready` on.

    A client that reads too slowly is told by `overflow` that changes are missing. A session has at
    most four watches, each of at most 8192 directories. What a file operation writes as a whole is
    one `create` or `write`.
    """
    session, work = context.session(), context.work
    with ExitStack() as held:
        held.enter_context(context.streaming("events", session))
        # If the client disconnects meanwhile, the watch is closed again.
        watch = await work.complete(
            file_trees.watch(context.principal, session, query.path, recursive=query.recursive),
            lambda opened: work.detach(opened.close()),
        )
        held.callback(lambda: work.detach(watch.close()))
        work.follow()
        return EventStream(_changes(context, watch, query), held.pop_all())


async def _changes(
    context: Context, watch: FileWatch, query: WatchQuery
) -> AsyncGenerator[Event | None]:
    """The changes, until there are no more, or the caller loses access."""
    yield Event("ready", WatchStarted(path=query.path, recursive=query.recursive))
    reason = f"{query.path} is gone"
    while not watch.ended:
        try:
            changes = await watch.next(_WAIT_SECONDS)
        except PaddockError as error:
            reason = error.detail
            break
        if not changes:
            yield None
        for change in changes:
            yield Event("change", FileChange.model_validate(change._asdict()))
        if not context.allowed():
            return
    yield Event("end", WatchEnded(reason=reason))
