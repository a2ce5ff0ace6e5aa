"""Stands for the program that builds images in the background."""

import os
import sys
from pathlib import Path

import pytest

from orchestrator.sandbox.sandboxes import image_builds

# It reports a step, and ends as it is told on a named pipe.
_PROGRAM = """
import os, sys
print("    Step 2/9 : RUN install", flush=True)
with open(sys.argv[2], "a") as log:
    print(os.getpid(), file=log)
with open(sys.argv[1]) as told:
    status = int(told.read())
print("error: no mirror answers" if status else "==> built")
sys.exit(status)
"""


class Builder:
    """Its builds wait for `end`."""

    def __init__(self, directory: Path) -> None:
        self._pipe, self._log = directory / "told", directory / "began"
        os.mkfifo(self._pipe)
        self._log.touch()

    @classmethod
    def at(cls, directory: Path, patch: pytest.MonkeyPatch) -> "Builder":
        """One with its files in that directory, in place of the real one."""
        made = cls(directory)
        patch.setattr(image_builds, "build_words", lambda image: made.words)
        return made

    @property
    def words(self) -> list[str]:
        """The program's command line."""
        return [sys.executable, "-c", _PROGRAM, str(self._pipe), str(self._log)]

    @property
    def pids(self) -> list[int]:
        """The processes of the builds that have begun."""
        return [int(line) for line in self._log.read_text().splitlines()]

    @property
    def began(self) -> int:
        """How many builds have begun."""
        return len(self.pids)

    def end(self, status: int) -> None:
        """Has the build that waits end."""
        self._pipe.write_text(str(status))
