"""The session that a command creates for itself: its first files, and its end."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from paddock.cli.output import note, working

if TYPE_CHECKING:
    from paddock.client import Session


class Repository(NamedTuple):
    """A repository that is cloned first; `secret` is the name of the proxy's."""

    url: str
    branch: str | None
    secret: str | None


def note_image(session: "Session") -> None:
    """Says it if the session has another image than its level's, which is not there yet."""
    info = session.info
    if info.missing_image is not None and info.sandbox is not None:
        note(
            f"{info.missing_image}, the default image of {info.permission_level}, is not there "
            f"yet: this session has {info.sandbox.image}; `paddock sessions images` says more"
        )


async def clone(session: "Session", repository: Repository) -> str:
    """Clones it with one commit, and returns its directory. Raises: GitError."""
    with working(f"cloning {repository.url}"):
        return await session.git.clone(
            repository.url, branch=repository.branch, depth=1, secret=repository.secret
        )


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
