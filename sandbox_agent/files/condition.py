"""What must hold for a file before it is replaced or removed. Runs in a file worker."""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence

from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.files import ranges
from sandbox_agent.files.places import Place, open_in


class Condition:
    """What must hold for a file before it is replaced or removed: `If-Match` and its opposite.

    `lock` is a file that all workers of the sandbox share: while one checks and replaces, the
    others wait. The kernel releases it if the worker dies.
    """

    def __init__(
        self,
        match: Sequence[str] | None = None,
        none_match: Sequence[str] | None = None,
        lock: int | None = None,
    ) -> None:
        self.match, self._none_match, self._lock = match, none_match, lock

    def check(self, place: Place, path: str) -> None:
        """Raises: AgentError precondition_failed, OSError."""
        if self.match is None and self._none_match is None:
            return
        found = None
        with contextlib.suppress(FileNotFoundError):
            fd = open_in(place, path, os.O_PATH | os.O_NOFOLLOW)
            try:
                found = ranges.version(os.fstat(fd))
            finally:
                os.close(fd)
        if not ranges.meets(found, self.match, self._none_match):
            raise not_met(path)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keeps other workers from replacing a file meanwhile."""
        if self._lock is None:
            yield
            return
        fcntl.lockf(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN)


UNCONDITIONAL = Condition()


def not_met(path: str) -> AgentError:
    """The refusal for a file of another version."""
    text = f"is not the version that If-Match or If-None-Match names: {path}; read it again"
    return AgentError("precondition_failed", text)
