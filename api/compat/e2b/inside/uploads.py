"""Which files were written through `/files`: E2B's clients expect other events of them."""

from api.compat.notes import Notes
from orchestrator.state.session import Session

# Of one session.
_MOST = 1024


class Uploads:
    """The latest uploads of each session, by the absolute path, each with a number."""

    def __init__(self) -> None:
        self._notes: Notes[str, int] = Notes(_MOST)
        self._count = 0

    def begin(self, session: Session, path: str) -> None:
        """A file is about to be written, or written again."""
        self._count += 1
        self._notes.put(session, path, self._count)

    def number(self, session_key: str, path: str) -> int:
        """The number of the latest upload to the path; 0: there was none."""
        return self._notes.get(session_key, path) or 0
