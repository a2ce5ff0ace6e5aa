"""Copies of the files that a line names. Nothing in the session can change them.

The agent owns them, and their directories below /tmp. The session's user can read them, but can't
change, replace or remove them.
"""

import os
import re
from contextlib import suppress

from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.protocol import KEPT_PREFIX

# The directory's name can't be guessed, so no one can create it first.
_PATH = re.compile(re.escape(KEPT_PREFIX) + r"[0-9a-f]{16}/[0-9]{1,2}(?:\.[A-Za-z0-9]{1,8})?")
_MOST_FILES = 16


class KeptFiles:
    """The copies for one line of a terminal, until they are released."""

    def __init__(self, files: dict[str, bytes]) -> None:
        """Makes the copies of `files`, contents by path.

        Raises: AgentError; then no copy is left.
        """
        if len(files) > _MOST_FILES or not all(map(_PATH.fullmatch, files)):
            raise AgentError("validation_error", "files must be few, each with a path for a copy")
        self._paths: list[str] = []
        self._directories: set[str] = set()
        try:
            for path, data in files.items():
                self._make(path, data)
        except OSError as error:
            self.release()
            raise AgentError("busy", f"no room for a copy of a file: {error.strerror}") from None

    def _make(self, path: str, data: bytes) -> None:
        directory = os.path.dirname(path)
        if directory not in self._directories:
            os.mkdir(directory, 0o700)
            self._directories.add(directory)
            os.chmod(directory, 0o755)  # noqa: S103 - the session's user reads it
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(path, flags, 0o444)
        self._paths.append(path)
        try:
            os.fchmod(fd, 0o444)
            while data:
                data = data[os.write(fd, data) :]
        finally:
            os.close(fd)

    def release(self) -> None:
        """Removes the copies; a second call does nothing."""
        with suppress(OSError):
            for path in self._paths:
                os.unlink(path)
            for directory in self._directories:
                os.rmdir(directory)
        self._paths, self._directories = [], set()
