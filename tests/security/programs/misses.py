"""Runs in a session that may read `listed` and `café` (NFC) only: tries to read other files.

Each attempt is printed with what came of it: `name: error number` or `name: <content>`.
"""

import ctypes
import importlib
import mmap
import os
import subprocess
import sys
import threading
import unicodedata
from collections.abc import Callable

LIBC = ctypes.CDLL(None, use_errno=True)
OPEN, CREAT, OPENAT2, X32_OPEN = 2, 85, 437, 0x40000002
BROKER = os.getppid()


def slurp(path: str | int, flags: int = os.O_RDONLY) -> str:
    if isinstance(path, str):
        path = os.open(path, flags, 0o600)
    try:
        return os.read(path, 4096).decode(errors="replace")
    finally:
        os.close(path)


def call(number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char]) -> int:
    fd = int(LIBC.syscall(number, *arguments))
    if fd < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return fd


def reopened() -> str:
    pin = os.open("secret", os.O_PATH)
    return slurp(f"/proc/self/fd/{pin}")


def from_directory() -> str:
    return slurp(os.open("secret", os.O_RDONLY, dir_fd=os.open("sub/..", os.O_PATH)))


def within_proc() -> str:
    os.chdir("/proc")
    try:
        return slurp("self/cwd/../workspace/secret")
    finally:
        os.chdir("/workspace")


def own_of_the_broker() -> str:
    """`self` must not be the broker's own."""
    os.chdir("/proc")
    try:
        return "" if int(slurp("self/stat").split()[0]) == os.getpid() else "CANARY"
    finally:
        os.chdir("/workspace")


def mapped() -> str:
    with open("secret", "rb") as file:
        return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)[:].decode()


def linked() -> str:
    os.link("secret", "out/link")
    return slurp("out/link")


def linked_by_symlink() -> str:
    os.symlink("/workspace/secret", "/tmp/symlink")
    return slurp("/tmp/symlink")


def took_its_place() -> str:
    os.rename("secret", "listed")
    return slurp("listed")


def executed() -> str:
    return subprocess.run(["./script"], capture_output=True, text=True, check=True).stdout


def imported() -> str:
    sys.path.insert(0, "/workspace/sub")
    try:
        return str(importlib.import_module("hidden").TEXT)
    finally:
        del sys.path[0]


def broker_file(name: str) -> Callable[[], str]:
    def read() -> str:
        """The broker is the parent of the guard, which is our parent."""
        for process in (BROKER - 1, BROKER, 1):
            try:
                text = slurp(f"/proc/{process}/{name}")
            except OSError:
                continue
            return "CANARY" + text
        raise PermissionError(13, "refused")

    return read


def in_child() -> str:
    return subprocess.run(["cat", "secret"], capture_output=True, text=True, check=True).stdout


def in_thread() -> str:
    found: list[str | OSError] = []

    def read() -> None:
        try:
            found.append(slurp("secret"))
        except OSError as error:
            found.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    (result,) = found
    if isinstance(result, OSError):
        raise result
    return result


NFD = unicodedata.normalize("NFD", "caf\u00e9")
MISSED: dict[str, Callable[[], str]] = {
    "plain": lambda: slurp("secret"),
    "absolute": lambda: slurp("/workspace/secret"),
    "parent": lambda: slurp("sub/../secret"),
    "out and in": lambda: slurp("/workspace/../workspace/secret"),
    "slashes": lambda: slurp("//workspace///secret"),
    "symbolic link": lambda: slurp("symlink"),
    "own symbolic link": linked_by_symlink,
    "link to a directory": lambda: slurp("up/secret"),
    "link made before": lambda: slurp("hardlink"),
    "decomposed": lambda: slurp(NFD),
    "root": lambda: slurp("/proc/self/root/workspace/secret"),
    "cwd": lambda: slurp("/proc/self/cwd/secret"),
    "cwd of a thread": lambda: slurp("/proc/thread-self/cwd/secret"),
    "cwd by number": lambda: slurp(f"/proc/{os.getpid()}/cwd/secret"),
    "within proc": within_proc,
    "pinned": reopened,
    "from a directory": from_directory,
    "mapped": mapped,
    "executed": executed,
    "imported": imported,
    "in a child": in_child,
    "in a thread": in_thread,
    "for writing too": lambda: slurp("secret", os.O_RDWR),
    "or created": lambda: slurp("secret", os.O_RDONLY | os.O_CREAT),
    "not followed": lambda: slurp("secret", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK),
    "bare call": lambda: slurp(call(OPEN, b"/workspace/secret", 0)),
    "unlisted directory": lambda: str(os.listdir("sub/inner")),
    "absent": lambda: slurp("sub/inner/absent"),
}
REFUSED: dict[str, Callable[[], str]] = {
    "openat2": lambda: slurp(call(OPENAT2, -100, b"secret", ctypes.create_string_buffer(24), 24)),
    "linked": linked,
    "took its place": took_its_place,
    "broker's memory": broker_file("mem"),
    "broker's map": broker_file("maps"),
    "broker's variables": broker_file("environ"),
    "broker's descriptor": broker_file("fd/0"),
    "broker's directory": broker_file("cwd/secret"),
    "broker's own": own_of_the_broker,
}


def attempt(tried: Callable[[], str]) -> str:
    try:
        return tried()
    except OSError as error:
        return str(error.errno)
    except subprocess.CalledProcessError as error:
        return f"exit {error.returncode}"


def main() -> None:
    wanted = {"missed": MISSED, "refused": REFUSED}[sys.argv[1]]
    for name, tried in wanted.items():
        print(f"{name}: {attempt(tried)!r}")


if __name__ == "__main__":
    main()
