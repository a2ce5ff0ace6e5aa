"""Digests of files that a context pack lists."""

import time
from collections.abc import Sequence
from contextlib import closing

from sandbox_agent.decide.digest import sha256
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.files.places import Place
from sandbox_agent.files.reading import Reader

_PIECE = 1024 * 1024
# After this time, the answer has the digests that are known, so a request can take longer only for
# its first file.
_SECONDS = 2.0


def digests(
    workspace: Place, paths: list[str], identities: Sequence[Sequence[int] | None]
) -> list[str | None]:
    """The sha256 of the first of these files, at least one; None for a file that does not exist.

    No link is followed, and only regular files are read. `identities` has the device and inode that
    each file must have; None allows any.
    """
    until = time.monotonic() + _SECONDS
    found: list[str | None] = []
    for path, identity in zip(paths, identities, strict=True):
        if found and time.monotonic() > until:
            break
        found.append(_digest(workspace, path, identity))
    return found


def _digest(workspace: Place, path: str, identity: Sequence[int] | None) -> str | None:
    try:
        with closing(Reader(workspace, path, links=False)) as reader:
            if identity is not None and reader.identity != tuple(identity):
                return None
            digest = sha256()
            while piece := reader.pull(_PIECE):
                digest.update(piece)
            return digest.hexdigest()
    except (AgentError, OSError):
        return None
