"""What is at a path, with the attributes that E2B's clients gave it."""

from api.compat.e2b.inside.access import Inside
from api.compat.e2b.inside.entries import ATTRIBUTES
from orchestrator.work.files.file_entries import FileEntry


async def stat(inside: Inside, path: str) -> FileEntry:
    """What is at a path in the form of this API; a link is not followed.

    Raises: the errors of `Files.stat`.
    """
    async with inside.kept():
        return await inside.plane.files.stat(
            inside.context.principal, inside.session, path, attributes=ATTRIBUTES
        )
