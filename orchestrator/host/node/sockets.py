"""The sockets to which a sandbox's agent and its other processes connect."""

import contextlib
import os
import socket
from pathlib import Path

from orchestrator.ground.file_handles import opened
from sandbox_agent.decide.protocol import (
    EGRESS_SOCKET_NAME,
    FORWARDER_UID,
    PORTS_SOCKET_NAME,
    PORTS_UID,
    QUESTIONS_SOCKET_NAME,
    SOCKET_NAME,
)

_BACKLOG = 8
_EGRESS_BACKLOG = 64
_PORTS_BACKLOG = 64
_QUESTIONS_BACKLOG = 8


def listening(run_dir: Path) -> socket.socket:
    """Opens a socket in a sandbox's run directory and replaces a leftover one. Raises: OSError.

    Only root may connect, and the call does not block.
    """
    return _listening(run_dir, SOCKET_NAME, _BACKLOG, group=None)


def listening_for_egress(directory: Path) -> socket.socket:
    """Likewise for the proxy's socket: only the sandbox's forwarder may connect.

    Raises: OSError.
    """
    return _listening(directory, EGRESS_SOCKET_NAME, _EGRESS_BACKLOG, group=FORWARDER_UID)


def listening_for_ports(directory: Path) -> socket.socket:
    """Likewise for ports: only the sandbox's process for them may connect. Raises: OSError."""
    return _listening(directory, PORTS_SOCKET_NAME, _PORTS_BACKLOG, group=PORTS_UID)


def listening_for_questions(directory: Path, uid: int) -> socket.socket:
    """Likewise for questions: only the session's commands may connect. Raises: OSError."""
    return _listening(directory, QUESTIONS_SOCKET_NAME, _QUESTIONS_BACKLOG, group=uid)


def _listening(directory: Path, name: str, backlog: int, group: int | None) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with opened(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW) as handle:
            # Through a descriptor, because a socket's path may have only 107 bytes.
            path = f"/proc/self/fd/{handle}/{name}"
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            listener.bind(path)
            os.chmod(path, 0o600)
            if group is not None:
                # Its group gets access, because the directory must stay ours to remove.
                _permit(path, group, 0o660)
                _permit(f"/proc/self/fd/{handle}", group, 0o710)
        listener.listen(backlog)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _permit(path: str, group: int, mode: int) -> None:
    os.chown(path, 0, group)
    os.chmod(path, mode)
