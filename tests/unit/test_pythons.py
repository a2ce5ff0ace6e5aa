"""The note about other Pythons in a test run."""

import sys
from pathlib import Path

import pytest

from tests.support import pythons

OWN = sys.version_info.minor
OTHER = OWN + 1


def test_others_are_named_with_the_way_to_run_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    assert pythons.others() == []
    assert "no other" in pythons.header()
    for program in (
        tmp_path / "bin" / f"python3.{OTHER}",
        tmp_path / "bin" / "python3.10",  # an unsupported version
        tmp_path / "bin" / f"python3.{OWN}",
        tmp_path / "pyenv" / "versions" / f"3.{OTHER + 1}.4" / "bin" / "python3",
    ):
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    assert pythons.others() == [f"3.{OTHER}", f"3.{OTHER + 1}"]
    assert f"`make versions` runs them on 3.{OTHER}, 3.{OTHER + 1}" in pythons.header()
