"""Files of a session's workspace; their bytes are streamed both ways."""

from contextlib import ExitStack

from api.access import Access
from api.answers import Download, Made, Upload
from api.context import Context
from api.operation import SESSION, operation
from orchestrator.errors import ValidationError
from paddock.contract.files import (
    FileLink,
    FileList,
    FileMoved,
    FilePath,
    FileWritten,
    LinkBody,
    ListQuery,
    MoveBody,
    PathBody,
    PathQuery,
    WriteQuery,
)

_TAG = "Files"
_FILES = SESSION + "/files"
_ERRORS = (
    "session_terminated",
    "invalid_transition",
    "conflict",
    "busy",
    "permission_denied",
    "sandbox_unavailable",
)


@operation(
    "GET",
    _FILES,
    Access.WORK,
    tag=_TAG,
    summary="Read a file",
    answers="The file's bytes.",
    errors=_ERRORS,
)
async def read_file(context: Context, query: PathQuery) -> Download:
    """The file's bytes: as many as it had when it was opened."""
    session, work = context.session(), context.work
    with ExitStack() as held:
        held.enter_context(context.streaming("downloads", session))
        # For a client that goes away meanwhile it is closed again.
        opened = await work.complete(
            context.plane.files.read(context.principal, session, query.path),
            lambda download: work.detach(download.close()),
        )
        held.callback(lambda: work.detach(opened.close()))
        return Download(opened.size, opened.permissions, opened.chunks(), held.pop_all())


@operation(
    "PUT",
    _FILES,
    Access.WORK,
    tag=_TAG,
    summary="Write a file",
    answers="What was written.",
    errors=(*_ERRORS, "too_large"),
)
async def write_file(context: Context, query: WriteQuery, upload: Upload) -> FileWritten:
    """Writes the body to the file, whole or not at all."""
    if query.mode == "append" and query.permissions is not None:
        raise ValidationError("what is appended changes no permissions", field="permissions")
    session = context.session()
    permissions = None if query.permissions is None else int(query.permissions, 8)
    with context.streaming("uploads", session):
        written = await context.plane.files.write(
            context.principal,
            session,
            query.path,
            query.mode,
            upload,
            permissions,
            parents=query.parents,
        )
    return FileWritten(path=query.path, mode=query.mode, bytes=written)


@operation(
    "DELETE",
    _FILES,
    Access.WORK,
    tag=_TAG,
    summary="Remove a file or an empty directory",
    answers="What was removed.",
    errors=_ERRORS,
)
async def delete_file(context: Context, query: PathQuery) -> FilePath:
    """Removes a file, a link, or an empty directory."""
    files, session = context.plane.files, context.session()
    await context.work.complete(files.delete(context.principal, session, query.path))
    return FilePath(path=query.path)


@operation(
    "GET",
    _FILES + "/list",
    Access.WORK,
    tag=_TAG,
    summary="List a directory",
    answers="What it holds.",
    errors=_ERRORS,
)
async def list_files(context: Context, query: ListQuery) -> FileList:
    """What a directory holds, some levels deep."""
    files, session = context.plane.files, context.session()
    listed = await files.list(context.principal, session, query.path, query.depth)
    return FileList.model_validate(listed)


@operation(
    "POST",
    _FILES + "/mkdir",
    Access.WORK,
    tag=_TAG,
    summary="Make a directory",
    answers="The directory is there.",
    errors=_ERRORS,
    examples={"nested": {"path": "src/lib"}},
)
async def make_directory(context: Context, body: PathBody) -> Made[FilePath]:
    """Makes a directory and those above it."""
    files, session = context.plane.files, context.session()
    await context.work.complete(files.mkdir(context.principal, session, body.path))
    return Made(FilePath(path=body.path))


@operation(
    "POST",
    _FILES + "/symlink",
    Access.WORK,
    tag=_TAG,
    summary="Make a symbolic link",
    answers="The link is there.",
    errors=_ERRORS,
    examples={"relative": {"path": "bin/tool", "target": "../lib/tool.py"}},
)
async def make_link(context: Context, body: LinkBody) -> Made[FileLink]:
    """Makes a symbolic link that stays in the workspace; a file or link there is replaced."""
    files, session = context.plane.files, context.session()
    await context.work.complete(files.symlink(context.principal, session, body.path, body.target))
    return Made(FileLink(path=body.path, target=body.target))


@operation(
    "POST",
    _FILES + "/move",
    Access.WORK,
    tag=_TAG,
    summary="Rename a file or directory",
    answers="What was renamed.",
    errors=_ERRORS,
    examples={"rename": {"source": "draft.txt", "destination": "notes.txt"}},
)
async def move_file(context: Context, body: MoveBody) -> FileMoved:
    """Renames a file or directory; a file at the destination is replaced."""
    files, session = context.plane.files, context.session()
    await context.work.complete(
        files.move(context.principal, session, body.source, body.destination)
    )
    return FileMoved(source=body.source, destination=body.destination)
