"""Reads paths from the memory of waiting processes."""

import os

from sandbox_agent.enforce import notify

# Of threads whose memory is kept open, and the paths read before all are opened again: a thread's
# number may pass to another process.
_MOST_KEPT = 64
_MOST_PATHS = 1000


class Memories:
    """Keeps the memory of the threads that ask often open: that takes longer than reading."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._read = 0

    def path(self, task: int, at: int) -> bytes:
        """The path at that address. Raises: PermissionError if it is hidden; OSError."""
        self._read += 1
        if self._read > _MOST_PATHS or len(self._open) >= _MOST_KEPT:
            self.forget()
        kept = self._open.get(task)
        if kept is not None:
            try:
                return notify.read_path(kept, at)
            except OSError:  # the thread may have other memory since it has executed a program
                os.close(self._open.pop(task))
        memory = self._open[task] = os.open(b"/proc/%d/mem" % task, os.O_RDONLY | os.O_CLOEXEC)
        return notify.read_path(memory, at)

    def forget(self) -> None:
        """Closes all."""
        for memory in self._open.values():
            os.close(memory)
        self._open.clear()
        self._read = 0
