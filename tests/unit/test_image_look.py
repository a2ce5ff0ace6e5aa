"""What the look into an image finds, and that no image makes it endless."""

import json
import os
import time
from pathlib import Path

import pytest

from sandbox_agent.enforce.libraries import Needs
from sandbox_agent.image import facts


def program(path: Path, content: bytes = b"#!/bin/sh\n", mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_programs_are_found_by_the_first_name_in_the_path(tmp_path: Path) -> None:
    first = program(tmp_path / "a/tool")
    program(tmp_path / "b/tool")
    real = program(tmp_path / "c/real")
    (tmp_path / "b/link").symlink_to(real)
    program(tmp_path / "b/data", mode=0o644)
    (tmp_path / "b/loop").symlink_to("loop")
    (tmp_path / "b/directory").mkdir()
    os.mkfifo(tmp_path / "b/fifo", 0o755)
    found = facts._programs(f"{tmp_path}/a:{tmp_path}/b:relative:{tmp_path}/none:{tmp_path}/b/data")
    assert found == {"tool": str(first), "link": str(real)}


def test_programs_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        program(tmp_path / f"tool{number}")
    monkeypatch.setattr(facts, "_MOST_PROGRAMS", 5)
    assert len(facts._programs(str(tmp_path))) == 5
    monkeypatch.setattr(facts, "_MOST_BYTES", len(str(tmp_path)) * 3)
    assert len(facts._programs(str(tmp_path))) < 5


def test_why_programs_can_not_start(tmp_path: Path) -> None:
    text = program(tmp_path / "text", b"hello\n")
    script = program(tmp_path / "script")
    small = program(tmp_path / "small", b"")
    found = facts._broken({"text": str(text), "script": str(script), "small": str(small)})
    assert set(found) == {"text", "small"}
    assert facts._broken({"gone": str(tmp_path / "gone")}) == {"gone": "No such file or directory"}


def test_a_missing_loader_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "elf_needs", lambda *_: Needs("/lib/none.so", [], []))
    elf = program(tmp_path / "elf", b"\x7fELF\x02\x01" + bytes(100))
    assert facts._broken({"elf": str(elf)}) == {"elf": "its loader /lib/none.so is missing"}


def test_files_with_privileges_are_counted(tmp_path: Path) -> None:
    program(tmp_path / "a/su", mode=0o4755)
    program(tmp_path / "a/write", mode=0o2755)
    program(tmp_path / "a/b/ls")
    (tmp_path / "out").symlink_to("/")
    (tmp_path / "a/self").symlink_to(tmp_path)
    found = facts._privileged(str(tmp_path))
    assert (found["setuid_count"], found["whole"]) == (2, True)
    assert sorted(found["setuid"]) == [f"{tmp_path}/a/su", f"{tmp_path}/a/write"]
    assert found["entries"] == 7


def test_the_search_for_files_has_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        program(tmp_path / f"{number % 5}/su{number}", mode=0o4755)
    monkeypatch.setattr(facts, "_MOST_NAMED", 3)
    named = facts._privileged(str(tmp_path))
    assert (len(named["setuid"]), named["setuid_count"], named["whole"]) == (3, 50, True)
    monkeypatch.setattr(facts, "_MOST_ENTRIES", 10)
    assert facts._privileged(str(tmp_path))["whole"] is False
    monkeypatch.undo()
    monkeypatch.setattr(time, "monotonic", iter([0.0, 1e9]).__next__)
    assert facts._privileged(str(tmp_path))["whole"] is False


def test_the_look_prints_what_a_record_has(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "_MOST_ENTRIES", 3000)
        facts.main("/nowhere", "ls", "no-such-program")
    said = json.loads(capsys.readouterr().out)
    assert os.path.basename(said["programs"]["ls"]) in ("ls", "coreutils", "busybox")
    assert said["broken"] == {}
