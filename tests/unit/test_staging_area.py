"""Staging areas: what is left of a removal is not staged again."""

import os
from pathlib import Path

import pytest

from orchestrator.ground.fault_points import FaultPoint
from orchestrator.host.workspace.staging_area import StagingArea

UID = 1_900_000_007


class _KilledError(BaseException):
    """The control plane's death."""


def test_an_interrupted_removal_leaves_nothing_staged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "staging").mkdir()
    area = StagingArea(tmp_path / "staging" / ("0" * 16))
    area.make(UID)
    staged = area.upper / "staged"
    staged.write_text("text")
    os.chown(staged, UID, UID)
    area.make(UID)
    assert staged.exists()

    def killed(point: FaultPoint) -> None:
        assert point is FaultPoint.ROLLBACK_BEGUN
        raise _KilledError

    with monkeypatch.context() as patch:
        patch.setattr(FaultPoint, "reached", killed)
        with pytest.raises(_KilledError):
            area.remove(UID)
    assert staged.exists()
    assert not area.exists
    area.make(UID)
    assert area.exists
    assert list(area.upper.iterdir()) == []
    area.remove(UID)
    assert not area.path.exists()
