"""Digests of files that a context pack lists."""

import hashlib
import time
from contextlib import closing

from sandbox_agent.errors import AgentError
from sandbox_agent.files import Reader
from sandbox_agent.places import Place

_PIECE = 1024 * 1024
# After this time, what is known is the answer, so that a request takes no longer than one file.
_SECONDS = 2.0


def digests(workspace: Place, paths: list[str]) -> list[str | None]:
    """The sha256 of the first of these files, at least one; None: there is no such file.

    No link is followed, and no file that is not a regular one is opened for long.
    """
    until = time.monotonic() + _SECONDS
    found: list[str | None] = []
    for path in paths:
        if found and time.monotonic() > until:
            break
        found.append(_digest(workspace, path))
    return found


def _digest(workspace: Place, path: str) -> str | None:
    try:
        with closing(Reader(workspace, path, links=False)) as reader:
            digest = hashlib.sha256()
            while piece := reader.pull(_PIECE):
                digest.update(piece)
            return digest.hexdigest()
    except (AgentError, OSError):
        return None
