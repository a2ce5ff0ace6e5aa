"""Files of a session's workspace; their bytes are streamed in both directions."""

from contextlib import ExitStack

from api.shape.access import Access
from api.shape.answers import Download, Made, Upload
from api.shape.context import Context
from api.shape.operation import SESSION, WORK_ERRORS, operation
from api.views.files import file_list
from orchestrator.ground.errors import ValidationError
from orchestrator.work.files.files import Files
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


@operation(
    "GET",
    _FILES,
    Access.WORK,
    tag=_TAG,
    summary="Read a file",
    answers="The file's bytes.",
    errors=WORK_ERRORS,
    restores=True,
)
async def read_file(context: Context, files: Files, query: PathQuery) -> Download:
    """The file's bytes: as many as it had when it was opened."""
    session, work = context.session(), context.work
    with ExitStack() as held:
        held.enter_context(context.streaming("downloads", session))
        # If the client disconnects meanwhile, the file is closed again.
        opened = await work.complete(
            files.read(context.principal, session, query.path),
            lambda download: work.detach(download.close()),
        )
        held.callback(lambda: work.detach(opened.close()))
        facts = opened.size, opened.permissions, opened.modified
        return Download(*facts, opened.chunks(), held.pop_all())


@operation(
    "PUT",
    _FILES,
    Access.WORK,
    tag=_TAG,
    summary="Write a file",
    answers="The path and size of the file.",
    errors=(*WORK_ERRORS, "too_large"),
    restores=True,
)
async def write_file(
    context: Context, files: Files, query: WriteQuery, upload: Upload
) -> FileWritten:
    """Writes the body to the file, completely or not at all."""
    if query.mode == "append" and query.permissions is not None:
        raise ValidationError("permissions can't be changed by appending", field="permissions")
    if query.mode == "append" and query.modified is not None:
        raise ValidationError("modified can't be set by appending", field="modified")
    session = context.session()
    permissions = None if query.permissions is None else int(query.permissions, 8)
    with context.streaming("uploads", session):
        written = await files.write(
            context.principal,
            session,
            query.path,
            query.mode,
            upload,
            permissions,
            parents=query.parents,
            modified=query.modified,
        )
    return FileWritten(path=query.path, mode=query.mode, bytes=written)


@operation(
    "DELETE",
    _FILES,
    Access.WORK,
    tag=_TAG,
    summary="Remove a file or an empty directory",
    answers="The removed path.",
    errors=WORK_ERRORS,
    restores=True,
)
async def delete_file(context: Context, files: Files, query: PathQuery) -> FilePath:
    """Removes a file, a link, or an empty directory."""
    session = context.session()
    await context.work.complete(files.delete(context.principal, session, query.path))
    return FilePath(path=query.path)


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
    """The content of a directory, up to `depth` levels deep."""
    session = context.session()
    listed = await files.list(context.principal, session, query.path, query.depth)
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
