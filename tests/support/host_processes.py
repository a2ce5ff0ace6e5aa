"""The processes of this host."""

from collections.abc import Iterator
from contextlib import suppress

import psutil


def host_processes() -> Iterator[psutil.Process]:
    """Each process, looked up anew.

    `psutil.process_iter` keeps its objects. In a long run of tests the numbers of processes wrap
    around, and then an object stands for a process that has ended, under the number of another.
    """
    for pid in psutil.pids():
        with suppress(psutil.NoSuchProcess):
            yield psutil.Process(pid)
