"""Flags of a container's bind mounts, which not every runtime keeps.

A bind mount has the flags of its source. runc keeps them. crun mounts anew with the flags that the
engine names, which are none: a read-only source becomes writable, and files can be executed where
`noexec` forbids it. So the flags are set again from outside, before the sandbox has a session. Its
agent checks them, however the runtime works inside.
"""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping

from orchestrator.ground.file_handles import opened
from orchestrator.host.engine.base import Bind

log = logging.getLogger(__name__)

# The kernel's numbers of these flags are the same in `statvfs` and in `mount_setattr`.
_KEPT = os.ST_RDONLY | os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC
_SECONDS = 20.0
# Only a process with one thread can enter a mount namespace, so a child does. What it needs is
# loaded before; inside, it only makes the calls. The flags are added to those that are there.
_CHILD = """
import ctypes, json, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
wanted = [(os.fsencode(path), struct.pack("4Q", flags, 0, 0, 0)) for path, flags in
          json.loads(sys.argv[2]).items()]
failed = libc.setns(int(sys.argv[1]), 0x20000)
for path, attributes in wanted:
    failed = failed or libc.syscall(442, -100, path, 0x100, attributes, 32)
os._exit(min(ctypes.get_errno(), 255) if failed else 0)
"""


def flags_of(binds: Iterable[Bind]) -> dict[str, int]:
    """The flags that each mount must have inside, by its place there; it may have others, too.

    What is mounted later on a bind that follows has flags of its own. Raises: OSError.
    """
    wanted = {
        bind.target: os.ST_RDONLY if bind.read_only else os.statvfs(bind.source).f_flag & _KEPT
        for bind in binds
        if not bind.follows
    }
    return {target: flags for target, flags in wanted.items() if flags}


def restore(namespace: str, flags: Mapping[str, int], is_there: Callable[[], bool]) -> None:
    """Adds these flags to the mounts in a mount namespace, which a path in /proc names.

    `is_there`: whether the process in that path is still the one that is meant. A failure is only
    logged, because the agent finds out what is missing: the mounts of a virtual machine are not in
    that namespace, for one.
    """
    try:
        with opened(namespace, os.O_RDONLY | os.O_CLOEXEC) as handle:
            if not is_there():
                return
            done = subprocess.run(
                [sys.executable, "-I", "-S", "-c", _CHILD, str(handle), json.dumps(dict(flags))],
                pass_fds=(handle,),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_SECONDS,
                env={},
                cwd="/",
                check=False,
            )
        if done.returncode != 0:
            log.warning("flags of mounts can't be set: %s", os.strerror(done.returncode))
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("flags of mounts can't be set: %s", error)
