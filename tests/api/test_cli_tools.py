"""`paddock tools`: manifests on this machine, without a control plane."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.cli import run
from tests.support.manifests import MINIMAL, PSQL


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PADDOCK_CONFIG_FILE", raising=False)
    monkeypatch.setenv("PADDOCK_STATE_DIR", str(tmp_path / "state"))
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PADDOCK_TOOLS_DIR", str(folder))
    return folder


def test_check_says_file_field_and_reason(folder: Path) -> None:
    assert run("tools", "check", str(PSQL)).status == 0
    bad = folder / "bad.clad.toml"
    bad.write_text(MINIMAL.replace('"^> $"', '".*"'))
    ended = run("tools", "check", str(PSQL), str(bad))
    assert ended.status == 1
    assert f"{bad}: session.ready_pattern: matches the empty string" in ended.line
    missing = run("tools", "check", str(folder / "none.clad.toml"))
    assert (missing.status, "No such file" in missing.line) == (1, True)


def test_check_prints_advice(folder: Path) -> None:
    session, oneshot = folder / "calc.clad.toml", folder / "greet.clad.toml"
    session.write_text(MINIMAL.replace('"^> $"', '"> $"'))
    oneshot.write_text(
        '[tool]\nname = "greet"\n[args.name]\ntype = "string"\npattern = "[a-z]"\n'
        '[command]\ntemplate = "echo {name}"\n[output]\n'
    )
    ended = run("tools", "check", str(session), str(oneshot))
    assert ended.status == 0
    assert f"{session}: session.ready_pattern: must match the last line" in ended.err
    assert f"{oneshot}: args.name.pattern: must match the whole value" in ended.err
    assert "2 can be used" in ended.err


def test_check_without_files_is_for_the_folder(folder: Path) -> None:
    assert "7 can be used" in run("tools", "check").err
    shutil.copy(PSQL, folder)
    assert "8 can be used" in run("tools", "check").err
    shutil.rmtree(folder)
    ended = run("tools", "check")
    assert (ended.status, "is not a directory" in ended.line) == (2, True)


def test_list(folder: Path, tmp_path: Path) -> None:
    shutil.copy(PSQL, folder)
    listed = {each["name"]: each for each in json.loads(run("tools", "list", "--json").out)}
    assert listed["psql_session.drop_table"]["human_approval"] is True
    assert "psql.select_query" in listed
    assert "psql_session.insert" in run("tools", "list").out
    other = tmp_path / "other"
    other.mkdir()
    (other / "bad.clad.toml").write_text('[tool]\nname = "bad"')
    ended = run("tools", "list", "--dir", str(other))
    assert ended.status == 1
    assert "bad.clad.toml: command: is missing, as is [session]" in ended.line
    assert "psql_session.insert" not in ended.out
