"""Digests of files that a context pack lists."""

import hashlib
import time
from collections.abc import Sequence
from contextlib import closing

from sandbox_agent.decide.errors import AgentError
from sandbox_agent.files.files import Reader
from sandbox_agent.files.places import Place

_PIECE = 1024 * 1024
# After this time, what is known is the answer, so that a request takes no longer than one file.
_SECONDS = 2.0


def digests(
    workspace: Place, paths: list[str], held: Sequence[Sequence[int] | None]
) -> list[str | None]:
    """The sha256 of the first of these files, at least one; None: there is no such file.

    No link is followed, and no file that is not a regular one is opened for long. `held` has the
    device and inode that each must have; None: any.
    """
    until = time.monotonic() + _SECONDS
    found: list[str | None] = []
    for path, wanted in zip(paths, held, strict=True):
        if found and time.monotonic() > until:
            break
        found.append(_digest(workspace, path, wanted))
    return found


def _digest(workspace: Place, path: str, held: Sequence[int] | None) -> str | None:
    try:
        with closing(Reader(workspace, path, links=False)) as reader:
            if held is not None and reader.identity != tuple(held):
                return None
            digest = hashlib.sha256()
            while piece := reader.pull(_PIECE):
                digest.update(piece)
            return digest.hexdigest()
    except (AgentError, OSError):
        return None
