"""A process that knows the programs of connections, because it has the session's user.

The forwarder asks it and serves others meanwhile. It is in no Landlock domain, so that it may look
at commands, and commands, which are in theirs, can neither trace nor signal it.
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
    """Starts it as a child, and returns the socket for `ask` and `answer`; None: it can't be.

    It ends when the socket is closed.
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
    """An answer: the number of the question, and a name or nothing. Raises: OSError at the end."""
    data = finder.recv(_MOST_BYTES)
    if not data:
        raise ConnectionResetError
    number, _, name = data.decode("ascii").partition(" ")
    return int(number), name


def _run(asked: socket.socket, uid: int) -> NoReturn:
    try:
        descriptor = asked.fileno()
        os.closerange(3, descriptor)
        os.closerange(descriptor + 1, os.sysconf("SC_OPEN_MAX"))
        # A process that changes its user can't be traced by others of the new one.
        privileges.drop_to(uid)
        syscalls.gain_no_privileges()
        privileges.dump_no_core()
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        while data := asked.recv(_MOST_BYTES):
            number, port = map(int, data.split())
            name = program_of(port, EGRESS_PORT, uid) or ""
            asked.send(b"%d %s" % (number, name.encode("ascii")))
    except BaseException as error:  # noqa: BLE001 - a child must never reach its parent's code
        print(f"program finder failed: {type(error).__name__}", file=sys.stderr, flush=True)
    finally:
        os._exit(0)
