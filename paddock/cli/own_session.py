"""The session that a command creates for itself: its first files, and its end."""

from pathlib import Path
from typing import TYPE_CHECKING

from paddock.cli.output import note

if TYPE_CHECKING:
    from paddock.client import Session


async def upload(session: "Session", directory: Path) -> None:
    """Uploads a directory's files; a note names what is no regular file."""
    sent = await session.files.upload_dir(directory)
    if sent.skipped:
        note(f"not uploaded, because they are not regular files: {', '.join(sent.skipped)}")


async def leave(session: "Session", *, keep: bool, purge: bool = True) -> None:
    """Closes the session, with `purge` also its files; with `keep` it only says how to end it."""
    if keep:
        note(f"session {session.id} is kept; `paddock sessions close {session.id}` ends it")
    else:
        await session.close(purge=purge)
