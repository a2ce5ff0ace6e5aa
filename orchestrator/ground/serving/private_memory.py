"""Keeps this process's memory, which has keys and sessions' secrets, out of core dumps."""

import ctypes
import os
import resource

_PR_SET_DUMPABLE = 4


def keep_memory_private() -> None:
    """Prevents crashes from storing the memory, and other users' processes from reading it.

    Programs that are started later inherit the limit, so their memory is not dumped either. A limit
    of 0 would only keep the kernel from writing a file; 1 also prevents it from running a program
    that `core_pattern` names. Raises: OSError.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
