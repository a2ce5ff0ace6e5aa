"""Which programs the processes of one command run by the record, to compare with what they do.

What a call of execve is to execute can change between the agent's look and the kernel's: at the
next call of the same process it is seen.
"""

from collections import OrderedDict

from sandbox_agent.confine.caller import Identity, Process, Program

_MOST_PROCESSES = 1024
_MOST_IMAGES = 4096


class Images:
    """What is known of one command's processes. Pure."""

    def __init__(self) -> None:
        # What each may run since its last call; None: anything, as far as it is known.
        self._expected: OrderedDict[Process, frozenset[Identity] | None] = OrderedDict()
        # What any of them may: a process that was forked runs what its parent did.
        self._seen: set[Identity] = set()
        self._complete = True

    def agree(self, process: Process, running: Program) -> bool:
        """Whether the process runs what is on record for it, as far as anybody can tell."""
        if running.images is None:
            return True
        if process in self._expected:
            expected = self._expected[process]
            return expected is None or running.images <= expected
        # Before the first call nothing but the command's own program can run.
        return not self._seen or not self._complete or running.images <= self._seen

    def record(self, process: Process, running: Program, next_one: Program) -> None:
        """The process, which runs the one program, is about to execute the next, or fails to."""
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
