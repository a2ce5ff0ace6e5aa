"""A Python that has imported the control plane and the command line, and forks for each program.

Importing takes longer than most of what tests run. `python -m tests.support.forker NAME` listens at
an abstract address until its standard input ends. A client sends `{"words": […], "env": {…},
"cwd": "…"}`, the module and its arguments, with three descriptors. It is told the pid, and at the
end the exit status, negative for a signal. What it sends meanwhile are numbers of signals. A
program whose client is gone is killed.
"""

import functools
import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
from contextlib import suppress
from typing import Any

import rich.table
import rich.text

import api.cli.entry
import api.server
import paddock.client
from paddock.cli import program

# What commands import when they need it.
IMPORTED = (api.cli.entry, api.server, paddock.client, rich.table, rich.text)
_MOST_BYTES = 2**20


def main(name: str) -> None:
    """Serves clients; goes on as the program in each process that is to run one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"\0{name}")
        listener.listen(64)
        program.build = functools.cache(program.build)
        program.build()
        # What is here stays shared between all programs.
        gc.freeze()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        print("ready", flush=True)
        words = _forked(listener)
    if words:
        sys.argv = [words[0], *words[1:]]
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)


def _forked(listener: socket.socket) -> list[str]:
    """The words of a program, in its process; none at the end of this one."""
    while True:
        ready, _, _ = select.select([listener.fileno(), 0], [], [])
        if 0 in ready:
            return []
        connection, _ = listener.accept()
        with connection:
            if os.fork() == 0:
                return _kept(connection)


def _kept(connection: socket.socket) -> list[str]:
    """Waits for the program of one client in a process between; returns in the program."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    data, descriptors, _, _ = socket.recv_fds(connection, _MOST_BYTES, 3)
    pid = os.fork()
    if pid == 0:
        return _become(json.loads(data), descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    with suppress(BrokenPipeError):
        connection.send(str(pid).encode())
        _await(connection, pid)
        _, status = os.waitpid(pid, 0)
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _await(connection: socket.socket, pid: int) -> None:
    """Waits for the program's end, and has signals reach it meanwhile."""
    ended, client = os.pidfd_open(pid), connection.fileno()
    while True:
        ready, _, _ = select.select([ended, client], [], [])
        if ended in ready:
            return
        number = connection.recv(16)
        os.kill(pid, int(number) if number else signal.SIGKILL)
        if not number:
            return


def _become(asked: dict[str, Any], descriptors: list[int]) -> list[str]:
    """The program's words, with its environment, its directory and its streams set."""
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    # What the former ones know of their files, as whether these are pipes, is no longer true.
    sys.stdin = os.fdopen(0, errors=sys.stdin.errors, closefd=False)
    sys.stdout = os.fdopen(1, "w", errors=sys.stdout.errors, closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors=sys.stderr.errors, closefd=False)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    words: list[str] = asked["words"]
    return words


if __name__ == "__main__":
    main(sys.argv[1])
