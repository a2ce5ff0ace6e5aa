"""Compares the programs that a command's processes run with those on record.

The file that a call of execve executes can change between the agent's check and the kernel's. The
next call of the same process reveals the difference.
"""

from collections import OrderedDict

from sandbox_agent.enforce.caller import Identity, Process, Program

_MOST_PROCESSES = 1024
_MOST_IMAGES = 4096


class Images:
    """What is known about one command's processes. Pure."""

    def __init__(self) -> None:
        # What each process may run since its last call; None means anything, as far as known.
        self._expected: OrderedDict[Process, frozenset[Identity] | None] = OrderedDict()
        # What any process may run: a forked process runs the program of its parent.
        self._seen: set[Identity] = set()
        self._complete = True

    def agree(self, process: Process, running: Program) -> bool:
        """Whether the process runs what is on record for it, as far as can be known."""
        if running.images is None:
            return True
        if process in self._expected:
            expected = self._expected[process]
            return expected is None or running.images <= expected
        # Before the first call, only the command's own program can run.
        return not self._seen or not self._complete or running.images <= self._seen

    def record(self, process: Process, running: Program, next_one: Program) -> None:
        """Records that the process, which runs `running`, is about to try to execute `next_one`."""
        either = None
        if running.images is not None and next_one.images is not None:
            either = running.images | next_one.images
        self._expected[process] = either
        self._expected.move_to_end(process)
        if len(self._expected) > _MOST_PROCESSES:
            self._expected.popitem(last=False)
        if either is None or len(self._seen) > _MOST_IMAGES:
            self._complete = False
        else:
            self._seen |= either
