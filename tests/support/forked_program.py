"""A program of this clone in a shell: `python -IS forked_program.py NAME MODULE [ARGUMENT…]`.

The Python at the address NAME forks for it (`forker.py`), with this one's streams, environment and
directory. Signals reach it, and its end is this one's.
"""

import json
import os
import signal
import socket
import sys

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(name: str, *words: str) -> int:
    """Runs it, and returns its exit status; a signal that ended it ends this program as well."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(f"\0{name}")
        asked = json.dumps({"words": words, "env": dict(os.environ), "cwd": os.getcwd()})
        socket.send_fds(connection, [asked.encode()], [0, 1, 2])
        for each in FORWARDED:
            signal.signal(each, lambda number, _: _forward(connection, number))
        connection.recv(16)  # its pid
        status = int(connection.recv(16))
    if status >= 0:
        return status
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
    return 1


def _forward(connection: socket.socket, number: int) -> None:
    connection.send(str(number).encode())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
