"""The system calls that run, open or change a file, by number, and where their paths are."""

import platform
from typing import NamedTuple

OPEN, EXEC, WRITE, READ = "open", "exec", "write", "read"

# A directory argument that stands for the working directory: calls without one.
CWD = -1


class Call(NamedTuple):
    """What a call does, and the positions of its arguments.

    `paths` are (directory, path) positions; a directory of CWD means that there is none, a
    path of None that the directory is the file. `flags` is the position of AT_ flags.
    `follows` says that a link at the end of a path is followed, unless the flags forbid it.
    """

    kind: str
    paths: tuple[tuple[int, int | None], ...]
    follows: bool = False
    flags: int | None = None


_PLAIN = ((CWD, 0),)
_AT = ((0, 1),)
_FILE: tuple[tuple[int, None], ...] = ((0, None),)

_CALLS = {
    "openat": Call(OPEN, _AT),
    "openat2": Call(OPEN, _AT),
    "execve": Call(EXEC, _PLAIN, follows=True),
    "execveat": Call(EXEC, _AT, follows=True),
    "unlinkat": Call(WRITE, _AT),
    "renameat": Call(WRITE, ((0, 1), (2, 3))),
    "renameat2": Call(WRITE, ((0, 1), (2, 3))),
    "mkdirat": Call(WRITE, _AT),
    "linkat": Call(WRITE, ((0, 1), (2, 3))),
    "symlinkat": Call(WRITE, ((1, 2),)),
    "mknodat": Call(WRITE, _AT),
    "fchmodat": Call(WRITE, _AT, follows=True),
    "fchmodat2": Call(WRITE, _AT, follows=True, flags=3),
    "fchownat": Call(WRITE, _AT, follows=True, flags=4),
    "utimensat": Call(WRITE, _AT, follows=True, flags=3),
    "truncate": Call(WRITE, _PLAIN, follows=True),
    "setxattr": Call(WRITE, _PLAIN, follows=True),
    "lsetxattr": Call(WRITE, _PLAIN),
    "removexattr": Call(WRITE, _PLAIN, follows=True),
    "lremovexattr": Call(WRITE, _PLAIN),
    "fchmod": Call(WRITE, _FILE),
    "fchown": Call(WRITE, _FILE),
    "ftruncate": Call(WRITE, _FILE),
    "fsetxattr": Call(WRITE, _FILE),
    "fremovexattr": Call(WRITE, _FILE),
    "inotify_add_watch": Call(READ, ((CWD, 1),), follows=True),
    "open": Call(OPEN, _PLAIN),
    "creat": Call(OPEN, _PLAIN),
    "unlink": Call(WRITE, _PLAIN),
    "rmdir": Call(WRITE, _PLAIN),
    "rename": Call(WRITE, ((CWD, 0), (CWD, 1))),
    "mkdir": Call(WRITE, _PLAIN),
    "link": Call(WRITE, ((CWD, 0), (CWD, 1))),
    "symlink": Call(WRITE, ((CWD, 1),)),
    "mknod": Call(WRITE, _PLAIN),
    "chmod": Call(WRITE, _PLAIN, follows=True),
    "chown": Call(WRITE, _PLAIN, follows=True),
    "lchown": Call(WRITE, _PLAIN),
    "utime": Call(WRITE, _PLAIN, follows=True),
    "utimes": Call(WRITE, _PLAIN, follows=True),
    "futimesat": Call(WRITE, _AT, follows=True),
}
_NUMBERS = {
    "x86_64": "open 2 truncate 76 ftruncate 77 rename 82 mkdir 83 rmdir 84 creat 85 link 86 "
    "unlink 87 symlink 88 chmod 90 fchmod 91 chown 92 fchown 93 lchown 94 utime 132 mknod 133 "
    "setxattr 188 lsetxattr 189 fsetxattr 190 removexattr 197 lremovexattr 198 fremovexattr 199 "
    "utimes 235 inotify_add_watch 254 openat 257 mkdirat 258 mknodat 259 fchownat 260 "
    "futimesat 261 unlinkat 263 renameat 264 linkat 265 symlinkat 266 fchmodat 268 utimensat 280 "
    "renameat2 316 execve 59 execveat 322 openat2 437 fchmodat2 452",
    "aarch64": "setxattr 5 lsetxattr 6 fsetxattr 7 removexattr 14 lremovexattr 15 "
    "fremovexattr 16 inotify_add_watch 27 mknodat 33 mkdirat 34 unlinkat 35 symlinkat 36 "
    "linkat 37 renameat 38 truncate 45 ftruncate 46 fchmod 52 fchmodat 53 fchownat 54 fchown 55 "
    "openat 56 utimensat 88 execve 221 renameat2 276 execveat 281 openat2 437 fchmodat2 452",
}


def calls() -> dict[int, tuple[str, Call]]:
    """The calls of this machine: from their number to name and meaning."""
    words = _NUMBERS[platform.machine()].split()
    pairs = zip(words[::2], words[1::2], strict=True)
    return {int(number): (name, _CALLS[name]) for name, number in pairs}
