"""Keys are added to and removed from their file, completely or not at all."""

import contextlib
import os
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import UnauthorizedError
from orchestrator.ground.limits import KeyLimits
from orchestrator.rules.access.key_bounds import KeyBounds
from orchestrator.rules.access.key_entries import add_entries, load_keys, table
from orchestrator.rules.access.keys import Principal, Role, digest
from orchestrator.rules.access.keys_file import (
    add_key,
    list_keys,
    remove_key,
    rotate_key,
    without_entry,
)
from orchestrator.settings.settings import Settings
from tests.support.keys import entry


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "keys.toml"


def test_added_listed_and_removed(path: Path) -> None:
    assert list_keys(path) == []
    limits = KeyLimits(max_sessions=2, requests_per_second=0.5)
    bounds = KeyBounds(images=("a:1",), max_idle_timeout=60, max_wall_timeout=600)
    ci = add_key(path, Principal("ci", Role.OPERATOR))
    ops = add_key(path, Principal("ops", Role.OPERATOR, limits=limits, bounds=bounds))
    assert ci != ops
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert ci not in path.read_text()
    assert list_keys(path) == [
        Principal("ci", Role.OPERATOR),
        Principal("ops", Role.OPERATOR, limits=limits, bounds=bounds),
    ]
    ring = load_keys(Settings(state_dir=path.parent, admin_key=SecretStr("x" * 20)))
    assert ring.authenticate(ops) == Principal("ops", Role.OPERATOR, limits=limits, bounds=bounds)
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
    add_key(path, Principal("three", Role.OPERATOR))
    assert path.read_text().startswith(f"# who may call\n\n# the second\n{two}\n[[keys]]\n")
    remove_key(path, "two")
    remove_key(path, "three")
    assert list_keys(path) == []
    assert path.read_text().startswith("# who may call\n")


def test_entries_in_one_line(path: Path) -> None:
    path.parent.mkdir()
    entries = [f'{{ name = "{n}", role = "admin", sha256 = "{digest(n)}" }}' for n in ("a", "b")]
    text = f"keys = [{', '.join(entries)}]  # short\n"
    path.write_text(text)
    with pytest.raises(ConfigError, match="edit it by hand"):
        add_key(path, Principal("c", Role.OPERATOR))
    assert path.read_text() == text
    remove_key(path, "a")
    assert path.read_text() == f"keys = [{entries[1]}]  # short\n"


def test_a_link_stays_a_link(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    target = tmp_path / "elsewhere.toml"
    path.symlink_to(target)
    add_key(path, Principal("ci", Role.OPERATOR))
    assert path.is_symlink()
    assert [key.name for key in list_keys(target)] == ["ci"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ci", "'ci' is taken"),
        ("admin", "admin is the name of the admin key"),
        ("Upper", "name must "),
        ("", "name must "),
        ('x"\nrole = "admin', "keys.toml: "),
        ('x"\nrole = "admin"\nsha256 = "' + "0" * 64 + '"\n[[keys]]\nname = "y', "name must "),
    ],
)
def test_bad_names_change_nothing(path: Path, name: str, expected: str) -> None:
    add_key(path, Principal("ci", Role.OPERATOR))
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=expected):
        add_key(path, Principal(name, Role.OPERATOR))
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["keys.toml"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[[keys", "keys.toml: Expected"),
        ("key = 1", "no such field"),
        ("", "there is no key 'ci'"),
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
        add_key(tmp_path / "file" / "keys.toml", Principal("ci", Role.OPERATOR))


_NAMES = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,63}", fullmatch=True)
_IMAGES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,40}", fullmatch=True)
_COUNTS = st.none() | st.integers(0, 2**62)
_RATES = st.none() | st.floats(1e-9, 1e12)
_MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC))
_EXPIRIES = st.none() | _MOMENTS.map(lambda moment: moment.replace(microsecond=0))
_LIMITS = st.builds(
    KeyLimits, _COUNTS, st.none() | st.floats(0, 1e12), _COUNTS, _COUNTS, _COUNTS, _RATES, _RATES
)
_BOUNDS = st.builds(
    KeyBounds,
    st.none() | st.from_regex(r"[a-z][a-z0-9-]{0,31}", fullmatch=True),
    st.none() | st.lists(_IMAGES, min_size=1, max_size=3).map(tuple),
    st.none() | st.lists(_NAMES, max_size=3).map(tuple),
)
_KEYS = st.one_of(
    st.builds(
        lambda name, limits, bounds, expires_at: Principal(
            name, Role.OPERATOR, limits=limits, bounds=bounds, expires_at=expires_at
        ),
        *(_NAMES, _LIMITS, _BOUNDS, _EXPIRIES),
    ),
    st.builds(
        lambda name, owner, expires_at: Principal(
            name, Role.VIEWER, owner=owner, expires_at=expires_at
        ),
        *(_NAMES, st.none() | _NAMES, _EXPIRIES),
    ),
    st.builds(Principal, _NAMES, st.sampled_from([Role.ADMIN, Role.METRICS])),
)


@given(_KEYS)
def test_every_key_is_read_as_it_was_written(key: Principal) -> None:
    principals: dict[str, Principal] = {}
    with contextlib.suppress(ConfigError):
        text = tomlkit.dumps({"keys": [table(key, digest("x"))]})
        add_entries(Path("k"), tomllib.loads(text), principals)
        assert principals == {digest("x"): key}
    assert principals or key.name == "admin"


_LINES = st.sampled_from(["# a comment", "", "  # [[keys]]", "x = 1"])


@given(st.lists(st.lists(_LINES, max_size=3), min_size=1, max_size=4), st.data())
def test_one_entry_goes_and_the_others_stay(gaps: list[list[str]], data: st.DataObject) -> None:
    lines: list[str] = []
    for number, gap in enumerate(gaps):
        lines += ["[[keys]]", f"n = {number}", *(line for line in gap if line != "x = 1")]
    number = data.draw(st.integers(0, len(gaps) - 1))
    document = tomlkit.parse("\n".join(lines))
    without_entry(document, number)
    text = tomlkit.dumps(document)
    comments = [line for line in lines if line.strip().startswith("#")]
    last = [line for line in gaps[-1] if line.strip().startswith("#")]
    assert text.count("#") == len(comments) - (len(last) if number == len(gaps) - 1 else 0)
    left: dict[str, Any] = tomllib.loads(text)
    kept = [entry["n"] for entry in left.get("keys", [])]
    assert kept == [n for n in range(len(gaps)) if n != number]


def test_a_rotated_key_has_two_secrets_for_the_overlap(path: Path) -> None:
    first = add_key(path, Principal("ci", Role.OPERATOR))
    path.write_text(path.read_text() + "# the end\n")
    second = rotate_key(path, "ci", timedelta(hours=1))
    settings = Settings(state_dir=path.parent, admin_key=SecretStr("x" * 20))
    ring = load_keys(settings)
    known = [ring.authenticate(secret) for secret in (first, second)]
    assert [each.name for each in known if each is not None] == ["ci", "ci"]
    assert [each.name for each in list_keys(path)] == ["ci"]
    old, new = known
    assert old is not None
    assert new is not None
    assert (old.expires_at, new.expires_at) == (ring.next_expiry, None)
    with pytest.raises(ConfigError, match="without an overlap"):
        rotate_key(path, "ci", timedelta(hours=1))
    third = rotate_key(path, "ci", timedelta())
    ring = load_keys(settings)
    assert [ring.authenticate(secret) for secret in (first, second)] == [None, None]
    assert ring.authenticate(third) == Principal("ci", Role.OPERATOR)
    assert path.read_text().endswith("# the end\n")


def test_an_old_secret_ends(path: Path) -> None:
    path.parent.mkdir()
    more = f'old_sha256 = "{digest("old")}"\nold_until = 2020-01-01T00:00:00Z\n'
    path.write_text(entry("ci", "new", more=more))
    ring = load_keys(Settings(state_dir=path.parent, admin_key=SecretStr("x" * 20)))
    with pytest.raises(UnauthorizedError):
        ring.authenticate("old")
    assert ring.authenticate("new") is not None
    rotate_key(path, "ci", timedelta(hours=1))


def test_an_unknown_scope_names_the_file_the_line_and_the_nearest(path: Path) -> None:
    path.parent.mkdir()
    path.write_text(entry("ci", "a") + entry("cd", "b", more='scopes = ["sesions:create"]'))
    with pytest.raises(ConfigError) as refused:
        list_keys(path)
    assert str(refused.value) == (
        f"{path}: keys entry 2: scopes 'sesions:create' is not a scope: did you mean "
        "sessions:create? (line 10)"
    )
