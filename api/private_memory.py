"""Keeps this process' memory, which has keys and sessions' secrets, out of core dumps."""

import ctypes
import os
import resource

_PR_SET_DUMPABLE = 4


def keep_memory_private() -> None:
    """No crash leaves it anywhere, and no process of another user can look into it.

    Programs that are started later get the limit, and have their own memory dumped neither: 0
    would keep the kernel from writing a file only, 1 also from feeding a program that
    `core_pattern` names. Raises: OSError.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
