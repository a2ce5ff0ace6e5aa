"""A helper has the rights of a workspace's user, no network and no environment, and bounds."""

from pathlib import Path

import pytest

from orchestrator.host.workspace.helper import Helper, HelperError, LateHelperError
from orchestrator.host.workspace.helper_limits import main
from tests.support import told_limits

UID = 1_900_001_236
MODULE = told_limits.__name__


def test_its_rights_and_limits(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told = Helper(MODULE, UID, 9.5, file_bytes=4096).ask({}, {"place": tmp_path})
    assert told == {
        "ids": [UID] * 6,
        "rights": ["0" * 16, "0" * 16, "1"],
        "limits": {
            "AS": [2**30] * 2,
            "CPU": [10] * 2,
            "NOFILE": [1024] * 2,
            "NPROC": [0] * 2,
            "CORE": [0] * 2,
            "FSIZE": [4096] * 2,
        },
        "up": [],
        "environment": [],
        "listed": ["file"],
    }


def test_never_as_root(tmp_path: Path) -> None:
    assert "never used as root" in Helper(MODULE, 0, 9).ask({}, {"place": tmp_path})["error"]


def test_a_failure_names_nothing(tmp_path: Path) -> None:
    told = Helper(MODULE, UID, 9).ask({"raise": True}, {"place": tmp_path})
    assert told == {"error": "ValueError", "kind": "failed"}


def test_without_an_answer(tmp_path: Path) -> None:
    with pytest.raises(LateHelperError):
        Helper(MODULE, UID, 0).ask({}, {"place": tmp_path})
    with pytest.raises(HelperError):
        Helper("orchestrator.none", UID, 9).ask({}, {"place": tmp_path})


def test_an_orphan_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parent died before its death was to end it."""
    monkeypatch.setattr("orchestrator.host.workspace.helper_limits._limit", lambda *_: None)
    monkeypatch.setattr("orchestrator.host.workspace.helper_limits.give_up_privileges", int)
    assert main([str(UID), "9", "0", "1"], lambda _: pytest.fail("it went on")) == 1
