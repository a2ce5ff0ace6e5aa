"""A stream of a file or tree as the agent keeps it, between its requests."""

from sandbox_agent.core.loop import Timer
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.excerpts import LONGEST_PATHS, MOST_PATHS, json_size
from sandbox_agent.decide.protocol import (
    Message,
)
from sandbox_agent.files.file_helper import FileHelper


class TransferStream:
    """A file or tree that is read or written in chunks; `args` are the arguments in its event."""

    def __init__(self, helper: FileHelper, mode: str, args: Message) -> None:
        self.helper = helper
        self.mode = mode
        self.args = args
        self.timer: Timer | None = None
        # Why an archive can't be unpacked.
        self.failure: AgentError | None = None
        # The last known summary of what was unpacked.
        self.unpacked: Message = {}
        self._room = LONGEST_PATHS

    def note(self, summary: Message) -> None:
        """Stores the latest summary, and adds its new paths to the earlier ones."""
        paths = self.unpacked.get("paths", [])
        for path in summary.get("paths", ()):
            self._room -= json_size(path)
            if self._room < 0 or len(paths) >= MOST_PATHS:
                break
            paths.append(path)
        self.unpacked = {**summary, "paths": paths}
