"""The socket that a sandbox's agent dials."""

import contextlib
import os
import socket
from pathlib import Path

from sandbox_agent.protocol import SOCKET_NAME

_BACKLOG = 8


def listening(run_dir: Path) -> socket.socket:
    """A socket in a sandbox's run directory, in place of one that is left there. Raises: OSError.

    Root only may dial it, and the call does not block.
    """
    directory = os.open(run_dir, os.O_PATH | os.O_DIRECTORY)
    try:
        # By descriptor, because a socket's path may have only 107 bytes.
        return _listening(f"/proc/self/fd/{directory}/{SOCKET_NAME}")
    finally:
        os.close(directory)


def _listening(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
