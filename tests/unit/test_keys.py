import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from orchestrator.config import ConfigError, Settings
from orchestrator.keys import KeyRing, Principal, Role, digest, is_handle, new_handle
from orchestrator.limits import KeyLimits

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
    ring = KeyRing.load(settings(tmp_path, keys))
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
    ring = KeyRing.load(settings(tmp_path, entry("ci", "secret-ci") + limits))
    expected = KeyLimits(max_sessions=3, max_cpus=1.5, requests_per_second=10)
    principal = ring.authenticate("secret-ci")
    assert principal is not None
    assert principal.limits == ring.limits("ci") == expected
    assert ring.limits("admin") == ring.limits("nobody") == KeyLimits()


def test_the_admin_key_is_made_once(tmp_path: Path) -> None:
    ring = KeyRing.load(settings(tmp_path, admin_key=None))
    file = tmp_path / "state" / "admin.key"
    secret = file.read_text().strip()
    assert ring.admin_key_file == file
    assert secret.startswith("pdk_")
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert os.listdir(file.parent) == ["admin.key"]
    again = KeyRing.load(settings(tmp_path, admin_key=None))
    assert again.authenticate(secret) == Principal("admin", Role.ADMIN)
    assert secret not in repr(vars(ring))


def test_a_key_file_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    target = tmp_path / "elsewhere"
    target.write_text(ADMIN)
    target.chmod(0o600)
    (tmp_path / "state" / "admin.key").symlink_to(target)
    with pytest.raises(ConfigError, match=r"admin\.key: Too many levels"):
        KeyRing.load(settings(tmp_path, admin_key=None))


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
        KeyRing.load(settings(tmp_path, admin_key=None))


def test_a_fifo_in_its_place_does_not_hang(tmp_path: Path) -> None:
    file = tmp_path / "state" / "admin.key"
    file.parent.mkdir()
    os.mkfifo(file, 0o600)
    with pytest.raises(ConfigError, match="regular file"):
        KeyRing.load(settings(tmp_path, admin_key=None))


HASH = digest("x")


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ('[[keys]]\nname = "a"\n', "keys entry 1: .*is missing"),
        (entry("a", "1") + "note = 1", "keys entry 1: note: no such field"),
        (entry("A", "1"), "keys entry 1: name must match"),
        (entry("a" * 65, "1"), "keys entry 1: name must match"),
        (entry("admin", "1"), "keys entry 1: name 'admin' is taken"),
        (entry("a", "1") + entry("a", "2"), "keys entry 2: name 'a' is taken"),
        (entry("a", "1") + entry("b", "1"), "keys entry 2: sha256 is that of another"),
        (entry("a", ADMIN), "keys entry 1: sha256 is that of another"),
        (entry("a", "1", "handle"), "keys entry 1: role must be"),
        (entry("a", "1", "root"), "keys entry 1: role must be"),
        (f'[[keys]]\nname = "a"\nrole = 1\nsha256 = "{HASH}"', "keys entry 1: role must be"),
        (f'[[keys]]\nname = "a"\nrole = ["admin"]\nsha256 = "{HASH}"', "role must be"),
        ('[[keys]]\nname = "a"\nrole = "admin"\nsha256 = "abc"', "keys entry 1: sha256 must"),
        (entry("a", "1").replace(digest("1"), digest("1").upper()), "sha256 must"),
        (entry("a", "1") + "max_sessions = -1", "keys entry 1: max_sessions is out of range"),
        (entry("a", "1") + 'max_cpus = "2"', "keys entry 1: max_cpus must be a number"),
        ('keys = ["a"]', "keys entry 1: must be a table"),
        ("keys = 1", "array of tables"),
        ("key = 1", "key: no such field"),
        ("[[keys", "Expected"),
    ],
)
def test_bad_keys_files_are_refused(tmp_path: Path, keys: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected) as caught:
        KeyRing.load(settings(tmp_path, keys))
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
