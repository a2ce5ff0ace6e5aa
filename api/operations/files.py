"""Files of a session's workspace; their bytes are streamed in both directions."""

from contextlib import ExitStack

from api.shape import preconditions
from api.shape.access import Access
from api.shape.answers import Described, Made, NotModified, Upload
from api.shape.byte_answers import Download, PartialDownload
from api.shape.context import Context
from api.shape.operation import SESSION, WORK_ERRORS, operation
from api.shape.preconditions import IF_MATCH, IF_NONE_MATCH, RANGE
from api.views.files import file_entry, file_list
from orchestrator.ground.errors import ConflictError, PreconditionFailedError, ValidationError
from orchestrator.work.files.file_requests import NO_CONDITIONS, Conditions
from orchestrator.work.files.file_trees import check_globs
from orchestrator.work.files.files import Files
from paddock.contract.files import (
    DeleteQuery,
    FileLink,
    FileList,
    FileMoved,
    FilePath,
    FileRemoved,
    FileStat,
    FileWritten,
    LinkBody,
    ListQuery,
    MoveBody,
    PathBody,
    PathQuery,
    WriteQuery,
)
from sandbox_agent.decide.files import ranges

_TAG = "Files"
_FILES = SESSION + "/files"


@operation(
    "GET",
    _FILES,
    Access.WORK,
    tag=_TAG,
    summary="Read a file",
    answers={
        200: "The file's bytes.",
        206: "The bytes of the range.",
        304: "The file is in one of the versions of `If-None-Match`.",
    },
    errors=(*WORK_ERRORS, "precondition_failed", "range_not_satisfiable", "too_large"),
    restores=True,
    headers=(IF_MATCH, IF_NONE_MATCH, RANGE),
)
async def read_file(
    context: Context, files: Files, query: PathQuery
) -> Download | PartialDownload | NotModified:
    """The file's bytes: as many as it had when it was opened, or one range of them.

    A header `Range` in another form, or with several ranges, is ignored.
    """
    session, work = context.session(), context.work
    conditions = preconditions.conditions(context.preconditions)
    wanted = preconditions.wanted_range(context.preconditions)
    with ExitStack() as held:
        held.enter_context(context.streaming("downloads", session))
        # If the client disconnects meanwhile, the file is closed again.
        opened = await work.complete(
            files.read(context.principal, session, query.path, wanted=wanted),
            lambda download: work.detach(download.close()),
        )
        held.callback(lambda: work.detach(opened.close()))
        if _has_already(opened.version, conditions, query.path):
            return NotModified(opened.version or "")
        facts = opened.permissions, opened.modified, opened.chunks(), held.pop_all(), opened.version
        if opened.part is None:
            return Download(opened.size, *facts)
        start, length = opened.part
        return PartialDownload(length, *facts, start, opened.size)


def _has_already(version: str | None, conditions: Conditions, path: str) -> bool:
    """Whether the caller has that version. Raises: PreconditionFailedError if it wants another."""
    if not ranges.meets(version, conditions.match, None):
        raise PreconditionFailedError(f"is not the version that If-Match names: {path}")
    return not ranges.meets(version, None, conditions.none_match)


@operation(
    "HEAD",
    _FILES,
    Access.WORK,
    tag=_TAG,
    summary="Describe a file in headers",
    answers="The headers that a GET has; `Content-Length` is the file's size.",
    errors=WORK_ERRORS,
    restores=True,
)
async def describe_file(context: Context, files: Files, query: PathQuery) -> Described:
    """The headers of a GET, without opening the file. A link is not followed."""
    found = await files.stat(context.principal, context.session(), query.path)
    if found.type != "file":
        raise ConflictError(f"not a regular file: {query.path}")
    version = found.version or ""
    return Described(found.size, int(found.mode, 8) & 0o777, int(found.modified), version)


@operation(
    "GET",
    _FILES + "/stat",
    Access.WORK,
    tag=_TAG,
    summary="Describe a file, directory or link",
    answers="Its type, size, mode, time and entity tag.",
    errors=WORK_ERRORS,
    restores=True,
)
async def stat_file(context: Context, files: Files, query: PathQuery) -> FileStat:
    """What is at a path. A symbolic link is described, not followed."""
    found = await files.stat(context.principal, context.session(), query.path)
    return FileStat.model_validate(file_entry(found) | {"etag": found.version or ""})


@operation(
    "PUT",
    _FILES,
    Access.WORK,
    tag=_TAG,
    summary="Write a file",
    answers="The path and size of the file.",
    errors=(*WORK_ERRORS, "too_large", "precondition_failed"),
    restores=True,
    headers=(IF_MATCH, IF_NONE_MATCH),
)
async def write_file(
    context: Context, files: Files, query: WriteQuery, upload: Upload
) -> FileWritten:
    """Writes the body to the file, completely or not at all.

    With `If-Match`, only if the file is still in that version; with `If-None-Match: *`, only if it
    does not exist. No other request can write it in between.
    """
    conditions = preconditions.conditions(context.preconditions)
    if query.mode == "append" and conditions != NO_CONDITIONS:
        raise ValidationError("appending has no conditions", field=IF_MATCH)
    if query.mode == "append" and query.permissions is not None:
        raise ValidationError("permissions can't be changed by appending", field="permissions")
    if query.mode == "append" and query.modified is not None:
        raise ValidationError("modified can't be set by appending", field="modified")
    session = context.session()
    permissions = None if query.permissions is None else int(query.permissions, 8)
    with context.streaming("uploads", session):
        written = await files.put(
            context.principal,
            session,
            query.path,
            query.mode,
            upload,
            permissions,
            parents=query.parents,
            modified=query.modified,
            conditions=conditions,
        )
    size, version = written
    return FileWritten(path=query.path, mode=query.mode, bytes=size, etag=version)


@operation(
    "DELETE",
    _FILES,
    Access.WORK,
    tag=_TAG,
    summary="Remove a file or directory",
    answers="The removed path.",
    errors=(*WORK_ERRORS, "precondition_failed"),
    restores=True,
    headers=(IF_MATCH,),
)
async def delete_file(context: Context, files: Files, query: DeleteQuery) -> FileRemoved:
    """Removes a file, a link, or an empty directory; with `recursive`, all that is in it, too.

    Links are removed, not followed. A directory with very many files takes more than one request:
    `busy` says so, and what was removed until then is gone.
    """
    session = context.session()
    conditions = preconditions.conditions(context.preconditions)
    removed = await context.work.complete(
        files.delete(
            *(context.principal, session, query.path),
            recursive=query.recursive,
            conditions=conditions,
        )
    )
    return FileRemoved(path=query.path, removed=removed)


@operation(
    "GET",
    _FILES + "/list",
    Access.WORK,
    tag=_TAG,
    summary="List a directory",
    answers="The directory's content.",
    errors=WORK_ERRORS,
    restores=True,
)
async def list_files(context: Context, files: Files, query: ListQuery) -> FileList:
    """The content of a directory, up to `depth` levels deep; with `glob`, only what matches."""
    session = context.session()
    if query.glob is not None:
        check_globs((query.glob,))
    given = query.path, query.levels, query.glob
    listed = await files.list(context.principal, session, *given)
    return file_list(listed)


@operation(
    "POST",
    _FILES + "/mkdir",
    Access.WORK,
    tag=_TAG,
    summary="Create a directory",
    answers="The directory exists.",
    errors=WORK_ERRORS,
    examples={"nested": {"path": "src/lib"}},
    restores=True,
)
async def make_directory(context: Context, files: Files, body: PathBody) -> Made[FilePath]:
    """Creates a directory and its parents."""
    session = context.session()
    await context.work.complete(files.mkdir(context.principal, session, body.path))
    return Made(FilePath(path=body.path))


@operation(
    "POST",
    _FILES + "/symlink",
    Access.WORK,
    tag=_TAG,
    summary="Create a symbolic link",
    answers="The link exists.",
    errors=WORK_ERRORS,
    examples={"relative": {"path": "bin/tool", "target": "../lib/tool.py"}},
    restores=True,
)
async def make_link(context: Context, files: Files, body: LinkBody) -> Made[FileLink]:
    """Creates a symbolic link that stays in the workspace; replaces a file or link there."""
    session = context.session()
    await context.work.complete(files.symlink(context.principal, session, body.path, body.target))
    return Made(FileLink(path=body.path, target=body.target))


@operation(
    "POST",
    _FILES + "/move",
    Access.WORK,
    tag=_TAG,
    summary="Rename a file or directory",
    answers="The old and the new path.",
    errors=WORK_ERRORS,
    examples={"rename": {"source": "draft.txt", "destination": "notes.txt"}},
    restores=True,
)
async def move_file(context: Context, files: Files, body: MoveBody) -> FileMoved:
    """Renames a file or directory; replaces a file at the destination."""
    session = context.session()
    await context.work.complete(
        files.move(context.principal, session, body.source, body.destination)
    )
    return FileMoved(source=body.source, destination=body.destination)
