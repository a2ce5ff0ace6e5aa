"""Runs in a session that may read `listed` only: opens paths that others change all the time.

Prints how many opens were made, how many gave which content, and how many were refused, as JSON.
"""

import ctypes
import json
import mmap
import os
import signal
import sys
import threading

LIBC = ctypes.CDLL(None, use_errno=True)
PATHS = (b"/workspace/listed\0", b"/workspace/secret\0")


def tally(open_once: "object", rounds: int) -> dict[str, int]:
    found = {"opens": 0, "listed": 0, "leaked": 0, "denied": 0, "other": 0}
    for _ in range(rounds):
        fd = open_once()  # type: ignore[operator]
        found["opens"] += 1
        if fd < 0:
            denied = ctypes.get_errno() == 13
            found["denied" if denied else "other"] += 1
            continue
        text = os.read(fd, 64)
        os.close(fd)
        found["listed" if text == b"LISTED" else "leaked"] += 1
    return found


def flipping_memory(rounds: int) -> dict[str, int]:
    """Another process changes the path while the call is made."""
    memory = mmap.mmap(-1, 4096)
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    memory[: len(PATHS[0])] = PATHS[0]
    child = os.fork()
    if child == 0:
        while True:
            for path in PATHS:
                memory[: len(path)] = path
    try:
        return tally(lambda: LIBC.open(ctypes.c_void_p(at), 0), rounds)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def renaming(rounds: int) -> dict[str, int]:
    """Eight threads put a link in place of another."""
    for number, path in enumerate(PATHS):
        os.symlink(path[:-1], f"/tmp/to{number}")
    over = threading.Event()

    def rename(mine: int) -> None:
        turn = mine
        while not over.is_set():
            turn += 1
            os.symlink(PATHS[turn % 2][:-1], f"/tmp/new{mine}")
            os.rename(f"/tmp/new{mine}", "/tmp/flip")

    os.symlink(PATHS[0][:-1], "/tmp/flip")
    threads = [threading.Thread(target=rename, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    try:
        return tally(lambda: LIBC.open(b"/tmp/flip", 0), rounds)
    finally:
        over.set()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    kinds = {"memory": flipping_memory, "rename": renaming}
    print(json.dumps(kinds[sys.argv[1]](int(sys.argv[2]))))
