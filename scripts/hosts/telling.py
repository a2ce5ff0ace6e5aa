"""A plugin of pytest that tells each test's outcome at once: `-p scripts.hosts.telling`.

It appends JSON lines to the file that `PADDOCK_TOLD` names; standard library and pytest only.
"""

import json
import os

import pytest

# Characters of an error.
LONGEST = 1000


class Teller:
    """Adds up a test's three reports, and tells the result after the last one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._outcome = "passed"
        self._seconds = 0.0
        self._why = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Takes the report of one phase of a test."""
        if report.when == "setup":
            self._outcome, self._seconds, self._why = "passed", 0.0, ""
        self._seconds += report.duration
        if report.outcome != "passed":
            self._outcome = report.outcome
            self._why = self._why or _reason(report)
        if report.when == "teardown":
            said = {"kind": "test", "id": report.nodeid, "outcome": self._outcome}
            self._tell(said | {"seconds": round(self._seconds, 1), "why": self._why})

    def _tell(self, said: dict[str, object]) -> None:
        with open(self._path, "a", encoding="utf-8") as told:
            told.write(json.dumps(said) + "\n")


def _reason(report: pytest.TestReport) -> str:
    """The error's message and place in one line; at the end, the console has the whole of it."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = f"{crash.path}:{crash.lineno}: {crash.message}" if crash else report.longreprtext
    return " ".join(text.split())[:LONGEST]


def pytest_configure(config: pytest.Config) -> None:
    """Registers the teller where a file is named."""
    if path := os.environ.get("PADDOCK_TOLD"):
        config.pluginmanager.register(Teller(path))
