"""A process that finds the programs of connections, which only the session's user may do.

The forwarder asks it, and serves others meanwhile. It is in no Landlock domain, so it may look at
commands. Commands are in domains of their own, so they can neither trace nor signal it.
"""

import os
import resource
import socket
import sys
from typing import NoReturn

from sandbox_agent.decide.protocol import EGRESS_PORT
from sandbox_agent.enforce import privileges, syscalls
from sandbox_agent.net.connection_owner import program_of

_MOST_BYTES = 128


def start(uid: int) -> socket.socket | None:
    """Starts it as a child, and returns the socket for `ask` and `answer`.

    Returns None if there is no room for the process. The process ends when the socket is closed.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    try:
        pid = os.fork()
    except OSError:  # no room for another process
        ours.close()
        theirs.close()
        return None
    if pid == 0:
        ours.close()
        _run(theirs, uid)
    theirs.close()
    return ours


def ask(finder: socket.socket, number: int, port: int) -> None:
    """Asks whose connection is at that port. Raises: OSError."""
    finder.send(b"%d %d" % (number, port))


def answer(finder: socket.socket) -> tuple[int, str]:
    """An answer: the question's number, and a name or "". Raises: OSError, also after the end."""
    data = finder.recv(_MOST_BYTES)
    if not data:
        raise ConnectionResetError
    number, _, name = data.decode("ascii").partition(" ")
    return int(number), name


def _run(forwarder: socket.socket, uid: int) -> NoReturn:
    try:
        descriptor = forwarder.fileno()
        os.closerange(3, descriptor)
        os.closerange(descriptor + 1, os.sysconf("SC_OPEN_MAX"))
        # Processes of the new user can't trace a process that has changed its user.
        privileges.drop_to(uid)
        syscalls.gain_no_privileges()
        privileges.dump_no_core()
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        while data := forwarder.recv(_MOST_BYTES):
            number, port = map(int, data.split())
            name = program_of(port, EGRESS_PORT, uid) or ""
            forwarder.send(b"%d %s" % (number, name.encode("ascii")))
    except BaseException as error:  # noqa: BLE001 - a child must never reach its parent's code
        print(f"program finder failed: {type(error).__name__}", file=sys.stderr, flush=True)
    finally:
        os._exit(0)
