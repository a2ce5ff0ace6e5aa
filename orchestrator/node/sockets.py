"""The socket to which a sandbox's agent connects."""

import contextlib
import os
import socket
from pathlib import Path

from sandbox_agent.protocol import SOCKET_NAME

_BACKLOG = 8


def listening(run_dir: Path) -> socket.socket:
    """Opens a socket in a sandbox's run directory and replaces a leftover one. Raises: OSError.

    Only root may connect, and the call does not block.
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
