"""Keys are added to and removed from their file, whole or not at all."""

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from orchestrator.config import ConfigError, Settings
from orchestrator.keys import KeyRing, Principal, Role, digest
from orchestrator.keys_file import add_key, list_keys, remove_key, without_entry
from orchestrator.limits import KeyLimits


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "keys.toml"


def test_added_listed_and_removed(path: Path) -> None:
    assert list_keys(path) == []
    limits = KeyLimits(max_sessions=2, requests_per_second=0.5)
    ci = add_key(path, "ci", Role.OPERATOR)
    ops = add_key(path, "ops", Role.ADMIN, limits)
    assert ci != ops
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert ci not in path.read_text()
    assert list_keys(path) == [
        Principal("ci", Role.OPERATOR),
        Principal("ops", Role.ADMIN, limits=limits),
    ]
    ring = KeyRing.load(Settings(state_dir=path.parent, admin_key=SecretStr("x" * 20)))
    assert ring.authenticate(ops) == Principal("ops", Role.ADMIN, limits=limits)
    remove_key(path, "ci")
    assert [key.name for key in list_keys(path)] == ["ops"]
    assert os.listdir(path.parent) == ["keys.toml"]


def test_comments_stay(path: Path) -> None:
    path.parent.mkdir()
    one, two = (
        f'[[keys]]  # {n}\nname = "{n}"\nrole = "operator"\nsha256 = "{digest(n)}"\n'
        for n in ("one", "two")
    )
    path.write_text(f"# who may call\n{one}\n# the second\n{two}")
    path.chmod(0o640)
    remove_key(path, "one")
    assert path.read_text() == f"# who may call\n\n# the second\n{two}"
    assert path.stat().st_mode & 0o777 == 0o600
    add_key(path, "three", Role.OPERATOR)
    assert path.read_text().startswith(f"# who may call\n\n# the second\n{two}\n[[keys]]\n")
    remove_key(path, "two")
    remove_key(path, "three")
    assert list_keys(path) == []
    assert path.read_text().startswith("# who may call\n")


def test_a_link_stays_a_link(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    target = tmp_path / "elsewhere.toml"
    path.symlink_to(target)
    add_key(path, "ci", Role.OPERATOR)
    assert path.is_symlink()
    assert [key.name for key in list_keys(target)] == ["ci"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ci", "'ci' is taken"),
        ("admin", "admin is the name of the admin key"),
        ("Upper", "name must match"),
        ("", "name must match"),
        ('x"\nrole = "admin', "keys.toml: "),
        ('x"\nrole = "admin"\nsha256 = "' + "0" * 64 + '"\n[[keys]]\nname = "y', "can't be"),
    ],
)
def test_bad_names_change_nothing(path: Path, name: str, expected: str) -> None:
    add_key(path, "ci", Role.OPERATOR)
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=expected):
        add_key(path, name, Role.OPERATOR)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["keys.toml"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[[keys", "keys.toml: Expected"),
        ("key = 1", "no such field"),
        ("", "there is no key 'ci'"),
        (
            f'keys = [{{ name = "ci", role = "admin", sha256 = "{digest("x")}" }}]',
            "remove it by hand",
        ),
    ],
)
def test_files_that_cannot_be_edited_stay(path: Path, text: str, expected: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(ConfigError, match=expected):
        remove_key(path, "ci")
    assert path.read_text() == text


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"keys\.toml|STATE_DIR"):
        add_key(tmp_path / "file" / "keys.toml", "ci", Role.OPERATOR)


_LINES = st.sampled_from(["# a comment", "", "  # [[keys]]", "x = 1"])


@given(st.lists(st.lists(_LINES, max_size=3), min_size=1, max_size=4), st.data())
def test_one_entry_goes_and_the_others_stay(gaps: list[list[str]], data: st.DataObject) -> None:
    lines: list[str] = []
    for number, gap in enumerate(gaps):
        lines += ["[[keys]]", f"n = {number}", *(line for line in gap if line != "x = 1")]
    number = data.draw(st.integers(0, len(gaps) - 1))
    left: dict[str, Any] = tomllib.loads(without_entry("\n".join(lines), number))
    kept = [entry["n"] for entry in left.get("keys", [])]
    assert kept == [n for n in range(len(gaps)) if n != number]
