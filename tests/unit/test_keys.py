import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import UnauthorizedError
from orchestrator.ground.limits import KeyLimits
from orchestrator.rules.access.key_bounds import KeyBounds
from orchestrator.rules.access.key_entries import load_keys
from orchestrator.rules.access.keys import KeyRing, Principal, Role, digest, is_handle, new_handle
from orchestrator.settings.settings import Settings

ADMIN = "an-admin-key-for-tests"


def settings(tmp_path: Path, keys: str | None = None, admin_key: str | None = ADMIN) -> Settings:
    keys_file = tmp_path / "keys.toml"
    if keys is not None:
        keys_file.write_text(keys)
    return Settings(
        state_dir=tmp_path / "state",
        admin_key=None if admin_key is None else SecretStr(admin_key),
        keys_file=None if keys is None else keys_file,
    )


def entry(name: str, secret: str, role: str = "operator") -> str:
    return f'[[keys]]\nname = "{name}"\nrole = "{role}"\nsha256 = "{digest(secret)}"\n'


def test_configured_keys(tmp_path: Path) -> None:
    keys = entry("ci", "secret-ci") + entry("ops", "secret-ops", "admin")
    ring = load_keys(settings(tmp_path, keys))
    assert ring.authenticate(ADMIN) == Principal("admin", Role.ADMIN)
    assert ring.authenticate("secret-ci") == Principal("ci", Role.OPERATOR)
    assert ring.authenticate("secret-ops") == Principal("ops", Role.ADMIN)
    assert ring.authenticate("") is None
    assert ring.authenticate(digest(ADMIN)) is None
    assert ring.admin_key_file is None
    assert not (tmp_path / "state").exists()
    assert repr(ring) == "KeyRing(admin, ci, ops)"


def test_limits_of_a_key(tmp_path: Path) -> None:
    limits = "max_sessions = 3\nmax_cpus = 1.5\nrequests_per_second = 10\n"
    ring = load_keys(settings(tmp_path, entry("ci", "secret-ci") + limits))
    expected = KeyLimits(max_sessions=3, max_cpus=1.5, requests_per_second=10)
    principal = ring.authenticate("secret-ci")
    assert principal is not None
    assert principal.limits == ring.limits("ci") == expected
    assert ring.limits("admin") == ring.limits("nobody") == KeyLimits()


def test_bounds_and_expiry_of_a_key(tmp_path: Path) -> None:
    members = (
        'max_level = "low"\nimages = ["a:1", "b"]\ntools = ["psql"]\n'
        "max_idle_timeout = 60\nmax_wall_timeout = 600\n"
        "expires_at = 2999-01-31T01:00:00+01:00\n"
    )
    ring = load_keys(settings(tmp_path, entry("ci", "secret-ci") + members))
    principal = ring.authenticate("secret-ci")
    assert principal is not None
    assert principal.bounds == KeyBounds("low", ("a:1", "b"), ("psql",), 60, 600)
    assert principal.expires_at == ring.next_expiry == datetime(2999, 1, 31, tzinfo=UTC)
    handle = Principal("handle:s", Role.HANDLE, "k", "ci")
    assert ring.bounds(handle) == principal.bounds


def test_a_key_that_has_expired_is_worth_nothing(tmp_path: Path) -> None:
    keys = entry("ci", "secret-ci") + "expires_at = 2020-01-31T00:00:00Z\n"
    ring = load_keys(settings(tmp_path, keys))
    with pytest.raises(UnauthorizedError, match="has expired"):
        ring.authenticate("secret-ci")
    assert ring.next_expiry is None
    assert ring.limits("ci") == KeyLimits()


def test_whose_sessions_are_seen(tmp_path: Path) -> None:
    keys = (
        entry("ci", "1")
        + entry("ops", "2", "admin")
        + entry("dash", "3", "viewer")
        + 'owner = "ci"\n'
        + entry("board", "4", "viewer")
        + 'scope = "all"\n'
        + entry("prometheus", "5", "metrics")
    )
    ring = load_keys(settings(tmp_path, keys))
    seen = {}
    for secret in "12345":
        principal = ring.authenticate(secret)
        assert principal is not None
        assert principal.account == principal.name
        owners = ("ci", "other", "dash", "")
        seen[principal.name] = [o for o in owners if principal.may_see("k", o)]
    assert seen == {
        "ci": ["ci"],
        "ops": ["ci", "other", "dash", ""],
        "dash": ["ci"],
        "board": ["ci", "other", "dash", ""],
        "prometheus": [""],  # the system's events, which have no owner
    }
    handle = Principal("handle:s", Role.HANDLE, "k", "ci")
    assert handle.account == "ci"
    assert [handle.may_see(key, "ci") for key in ("k", "l")] == [True, False]


def test_the_admin_key_is_made_once(tmp_path: Path) -> None:
    ring = load_keys(settings(tmp_path, admin_key=None))
    file = tmp_path / "state" / "admin.key"
    secret = file.read_text().strip()
    assert ring.admin_key_file == file
    assert secret.startswith("pdk_")
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert os.listdir(file.parent) == ["admin.key"]
    again = load_keys(settings(tmp_path, admin_key=None))
    assert again.authenticate(secret) == Principal("admin", Role.ADMIN)
    assert secret not in repr(vars(ring))


def test_a_key_file_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    target = tmp_path / "elsewhere"
    target.write_text(ADMIN)
    target.chmod(0o600)
    (tmp_path / "state" / "admin.key").symlink_to(target)
    with pytest.raises(ConfigError, match=r"admin\.key: Too many levels"):
        load_keys(settings(tmp_path, admin_key=None))


@pytest.mark.parametrize(
    ("content", "mode", "expected"),
    [(ADMIN, 0o640, "chmod 600"), ("short", 0o600, "at least 16"), ("", 0o600, "at least 16")],
)
def test_bad_key_files_are_refused(tmp_path: Path, content: str, mode: int, expected: str) -> None:
    file = tmp_path / "state" / "admin.key"
    file.parent.mkdir()
    file.write_text(content)
    file.chmod(mode)
    with pytest.raises(ConfigError, match=expected):
        load_keys(settings(tmp_path, admin_key=None))


def test_a_fifo_in_its_place_does_not_hang(tmp_path: Path) -> None:
    file = tmp_path / "state" / "admin.key"
    file.parent.mkdir()
    os.mkfifo(file, 0o600)
    with pytest.raises(ConfigError, match="regular file"):
        load_keys(settings(tmp_path, admin_key=None))


HASH = digest("x")


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ('[[keys]]\nname = "a"\n', "keys entry 1: .*is missing"),
        (entry("a", "1") + "note = 1", "keys entry 1: note is not a known field"),
        (entry("A", "1"), "keys entry 1: name must "),
        (entry("a" * 65, "1"), "keys entry 1: name must "),
        (entry("admin", "1"), "keys entry 1: name 'admin' is taken"),
        (entry("a", "1") + entry("a", "2"), "keys entry 2: name 'a' is taken"),
        (entry("a", "1") + entry("b", "1"), "keys entry 2: sha256 belongs to another"),
        (entry("a", ADMIN), "keys entry 1: sha256 belongs to another"),
        (entry("a", "1", "handle"), "keys entry 1: role must be"),
        (entry("a", "1", "root"), "keys entry 1: role must be"),
        (f'[[keys]]\nname = "a"\nrole = 1\nsha256 = "{HASH}"', "keys entry 1: role must be"),
        (f'[[keys]]\nname = "a"\nrole = ["admin"]\nsha256 = "{HASH}"', "role must be"),
        ('[[keys]]\nname = "a"\nrole = "admin"\nsha256 = "abc"', "keys entry 1: sha256 must"),
        (entry("a", "1").replace(digest("1"), digest("1").upper()), "sha256 must"),
        (
            entry("a", "1") + "max_sessions = -1",
            "keys entry 1: max_sessions must be greater",
        ),
        (entry("a", "1") + 'max_cpus = "2"', "keys entry 1: max_cpus must be a valid number"),
        (entry("a", "1") + "max_idle_timeout = 0", "max_idle_timeout must be greater"),
        (entry("a", "1") + "max_wall_timeout = 1.5", "max_wall_timeout must be a valid integer"),
        (entry("a", "1") + "max_wall_timeout = 99999999999", "max_wall_timeout must be less"),
        (entry("a", "1") + "max_sessions = 1.5", "max_sessions must be a valid integer"),
        (entry("a", "1") + "max_sessions = true", "max_sessions must be a valid integer"),
        (entry("a", "1") + "max_cpus = nan", "max_cpus must be a finite number"),
        (entry("a", "1") + "max_cpus = inf", "max_cpus must be a finite number"),
        (entry("a", "1") + "requests_per_second = 0", "requests_per_second must be greater"),
        (entry("a", "1") + 'max_level = "Low"', "max_level must match"),
        (entry("a", "1") + "images = []", "images must have at least 1 item"),
        (entry("a", "1") + 'images = ["-x"]', r"images\.0 must match"),
        (entry("a", "1") + 'tools = "psql"', "tools must be a valid list"),
        (entry("a", "1") + "expires_at = 2030-01-31T00:00:00", "expires_at must have timezone"),
        (entry("a", "1") + "expires_at = 2030-01-31", "expires_at must be a valid datetime"),
        (entry("a", "1") + 'expires_at = "2030-01-31T00:00:00Z"', "expires_at must be a valid"),
        (entry("a", "1") + 'owner = "b"', "owner is not for a key with the role operator"),
        (entry("a", "1", "admin") + "max_idle_timeout = 1", "max_idle_timeout is not for .* admin"),
        (entry("a", "1", "admin") + 'max_level = "low"', "max_level is not for .* admin"),
        (entry("a", "1", "admin") + "max_sessions = 1", "max_sessions is not for .* admin"),
        (entry("a", "1", "metrics") + 'scope = "all"', "scope is not for .* metrics"),
        (entry("a", "1", "viewer"), "keys entry 1: a viewer needs either owner"),
        (entry("a", "1", "viewer") + 'owner = "b"\nscope = "all"', "a viewer needs either owner"),
        (entry("a", "1", "viewer") + 'scope = "own"', "scope must be 'all'"),
        ('keys = ["a"]', "keys entry 1: must be a table"),
        ("keys = 1", "array of tables"),
        ("key = 1", "key: no such field"),
        ("[[keys", "Expected"),
    ],
)
def test_bad_keys_files_are_refused(tmp_path: Path, keys: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected) as caught:
        load_keys(settings(tmp_path, keys))
    assert str(caught.value).startswith(f"{tmp_path / 'keys.toml'}: ")


def test_handles() -> None:
    handle = new_handle()
    assert is_handle(handle)
    assert handle != new_handle()
    assert not is_handle(handle.upper())
    assert not is_handle(handle + "\n")
    assert not is_handle(handle[2:])


@given(st.text(st.characters(codec=None, categories=None)))
def test_any_text_can_be_tried(secret: str) -> None:
    ring = KeyRing({digest(ADMIN): Principal("admin", Role.ADMIN)})
    assert ring.authenticate(secret) is None or secret == ADMIN
    assert len(digest(secret)) == 64


def test_what_a_removed_keys_entry_said_holds_on() -> None:
    strict = Principal(
        "a",
        Role.OPERATOR,
        limits=KeyLimits(max_audit_bytes=1),
        bounds=KeyBounds(tools=("psql",)),
    )
    handle = Principal("h", Role.HANDLE, session_key="s", owner="a")
    ring = KeyRing({"1": strict})
    for _ in range(2):  # later changes make no difference
        ring.replace(KeyRing({"2": Principal("b", Role.OPERATOR)}))
        assert ring.named("a") is None
        assert ring.bounds(handle) == strict.bounds
        assert ring.limits("a") == strict.limits
    other = Principal("a", Role.OPERATOR)
    ring.replace(KeyRing({"3": other}))
    assert ring.bounds(handle) == other.bounds


def test_handles_of_a_key_that_nobody_knows_open_no_tool() -> None:
    handle = Principal("h", Role.HANDLE, session_key="s", owner="gone")
    assert KeyRing({}).bounds(handle).refuses_tool("psql") is not None
