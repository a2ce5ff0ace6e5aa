"""How clients of other projects pass their own tests here: results that are kept, and their tables.

`docs/compat.json` has them, and `make docs` writes the tables of `docs/compat.md` from it.
"""

import fcntl
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from scripts.markdown import table

_SUITES = ("client", "version", "tests", "level", "passed", "failed", "skipped")
_EXCEPTIONS = ("client", "reason", "", "tests")


@dataclass(frozen=True)
class Exemption:
    """A test that does not pass, and why."""

    test: str
    outcome: str  # failed, or skipped
    reason: str


@dataclass(frozen=True)
class Result:
    """What came of one suite; `client` and `suite` together name it."""

    client: str  # as people call it: Inspect AI
    version: str  # distributions and versions: inspect-ai 0.3.285
    suite: str  # whose tests, and which: its self-check of sandboxes
    level: str  # the permission level of the sessions
    passed: int
    failed: int = 0
    skipped: int = 0
    exceptions: Sequence[Exemption] = field(default=())

    def __post_init__(self) -> None:
        """Raises: ValueError if a test that does not pass has no reason."""
        named = [each.outcome for each in self.exceptions]
        if (named.count("failed"), named.count("skipped")) != (self.failed, self.skipped):
            raise ValueError(f"{self.suite}: each test that does not pass needs a reason")


def load(path: Path) -> list[Result]:
    """The stored results, by client and suite."""
    if not path.exists():
        return []
    stored = json.loads(path.read_text(encoding="utf-8"))
    return [
        Result(**{**each, "exceptions": [Exemption(**it) for it in each["exceptions"]]})
        for each in stored
    ]


def keep(path: Path, result: Result) -> None:
    """Stores a result in place of an earlier one of the same suite.

    Several processes may do so at once.
    """
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        others = [each for each in load(path) if _name(each) != _name(result)]
        members = [asdict(each) for each in sorted((*others, result), key=_name)]
        text = json.dumps(members, indent=2, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")
    finally:
        os.close(directory)


def suites(results: Sequence[Result]) -> str:
    """A row for each suite with its counts."""
    rows = [
        (
            *(each.client, each.version, each.suite, each.level),
            *(str(each.passed), str(each.failed or ""), str(each.skipped or "")),
        )
        for each in results
    ]
    return table(_SUITES, rows)


def exceptions(results: Sequence[Result]) -> str:
    """A row for each reason why tests do not pass, with these tests."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for each in results:
        for it in each.exceptions:
            tests = found.setdefault((each.client, it.reason, it.outcome), [])
            tests.append(f"`{it.test}`")
    return table(_EXCEPTIONS, [(*reason, ", ".join(tests)) for reason, tests in found.items()])


def _name(result: Result) -> tuple[str, str]:
    return result.client.casefold(), result.suite
