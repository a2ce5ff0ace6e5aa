"""The command line's message when a command hits a limit: one line on standard error."""

from types import SimpleNamespace
from typing import Any

import pytest

from paddock.cli.resources.processes import ended

END = {
    "exit_code": 1,
    "timed_out": False,
    "reason": None,
    "error": None,
    "truncated": False,
    "stored_bytes": 0,
    "output_bytes": 0,
}


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("oom", "memory was used up (oom)"),
        ("pids", "no room for another process (pids)"),
        ("disk", "the workspace or /tmp was full (disk)"),
        ("level_changed", "the command was ended: level_changed"),
        (None, ""),
    ],
)
def test_a_reason_is_one_line(
    reason: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    end: Any = SimpleNamespace(**{**END, "reason": reason})
    assert ended(end, "make") == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err
    assert shown.err.count("\n") == (reason is not None)
