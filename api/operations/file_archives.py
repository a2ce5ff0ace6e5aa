"""Directories of a session's workspace as archives, streamed in both directions."""

from contextlib import ExitStack

from api.shape.access import Access
from api.shape.answers import Upload
from api.shape.byte_answers import Packed
from api.shape.context import Context
from api.shape.operation import SESSION, WORK_ERRORS, operation
from orchestrator.work.files.file_archives import FileArchives
from paddock.contract.files import ArchiveQuery, ArchiveWritten

_TAG = "Files"
_ARCHIVE = SESSION + "/files/archive"
_ERRORS = (*WORK_ERRORS, "too_large")


@operation(
    "GET",
    _ARCHIVE,
    Access.WORK,
    tag=_TAG,
    summary="Read a directory as an archive",
    answers="The archive's bytes; if the connection breaks off, it is incomplete.",
    errors=_ERRORS,
    restores=True,
)
async def read_archive(
    context: Context, file_archives: FileArchives, query: ArchiveQuery
) -> Packed:
    """A tar or zip archive of everything in a directory, with modes, times and inner links.

    Modification times are in whole seconds. Left out are links that lead out of the directory,
    FIFOs, sockets and devices, what may not be read, and in a zip archive names that are not UTF-8.
    What vanishes while it is packed is missing.
    """
    session, work = context.session(), context.work
    with ExitStack() as held:
        held.enter_context(context.streaming("downloads", session))
        # If the client disconnects meanwhile, the archive is closed again.
        opened = await work.complete(
            file_archives.pack(context.principal, session, query.path, query.format),
            lambda download: work.detach(download.close()),
        )
        held.callback(lambda: work.detach(opened.close()))
        return Packed(opened.chunks(), opened.skipped, opened.skipped_names, held.pop_all())


@operation(
    "PUT",
    _ARCHIVE,
    Access.WORK,
    tag=_TAG,
    summary="Unpack an archive into a directory",
    answers="What was written.",
    errors=_ERRORS,
    restores=True,
)
async def write_archive(
    context: Context, file_archives: FileArchives, query: ArchiveQuery, upload: Upload
) -> ArchiveWritten:
    """Unpacks a tar or zip archive into a directory, which is created if missing.

    Existing files are replaced, others stay. Modes (without setuid, setgid and sticky),
    modification times and links inside the directory are kept; symbolic links with absolute
    targets are left out and named. An entry that would leave the directory, or is neither a file, a
    directory nor a link, is refused by its name. What was written before it stays, each entry
    completely, and the answer names the last of them.
    """
    session = context.session()
    with context.streaming("uploads", session):
        written = await file_archives.unpack(
            context.principal, session, query.path, query.format, upload
        )
    members = written._asdict() | {"skipped_names": list(written.skipped_names)}
    return ArchiveWritten(path=query.path, format=query.format, **members)
