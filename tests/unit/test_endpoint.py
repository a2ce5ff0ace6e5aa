"""One file contains the address at which the instance of a state directory listens."""

from pathlib import Path

import pytest

from orchestrator.settings.instance_url import announce, url_of, withdraw
from orchestrator.settings.instance_url import find_url as url_by_settings
from orchestrator.settings.settings import Settings
from paddock.cli.connection import Connection
from paddock.cli.exits import Failure
from paddock.connect.address import find_address


def find_url(url: str | None) -> str:
    return find_address(url, "a-key").url


def find_key() -> str:
    return find_address("http://127.0.0.1:1").key


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PADDOCK_URL", "PADDOCK_KEY", "PADDOCK_CONFIG_FILE", "PADDOCK_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PADDOCK_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PADDOCK_LISTEN", "0.0.0.0:9123")


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8700"),
        ("0.0.0.0", "http://127.0.0.1:8700"),
        ("::", "http://[::1]:8700"),
        ("paddock.example.org", "http://paddock.example.org:8700"),
    ],
)
def test_the_url_of_a_listener(host: str, url: str) -> None:
    assert url_of(host, 8700) == url


def test_commands_find_the_instance_that_listens(tmp_path: Path) -> None:
    assert find_url(None) == "http://127.0.0.1:9123"
    # The instance was started with another address than the current settings have.
    announce(tmp_path, "http://127.0.0.1:4321")
    assert find_url(None) == "http://127.0.0.1:4321"
    assert find_url("http://elsewhere:1") == "http://elsewhere:1"
    assert [path.name for path in tmp_path.iterdir()] == ["url"]
    withdraw(tmp_path)
    assert find_url(None) == "http://127.0.0.1:9123"


def test_what_is_no_url_is_not_taken_for_one(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("\x00not a url")
    assert url_by_settings(Settings()) == "http://127.0.0.1:9123"


def test_the_key_goes_with_the_instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"admin\.key"):
        find_key()
    (tmp_path / "admin.key").write_text("the-key-of-the-file\n")
    assert find_key() == "the-key-of-the-file"
    monkeypatch.setenv("PADDOCK_ADMIN_KEY", "the-key-of-settings")
    assert find_key() == "the-key-of-settings"


def test_the_key_goes_to_nobody_who_listens_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the default address, any program of the machine may wait for it."""
    (tmp_path / "admin.key").write_text("the-key-of-the-file\n")
    nothing_said = Connection(None, None, None)
    with pytest.raises(Failure, match=f"no control plane of the state directory {tmp_path}"):
        nothing_said.open()
    (tmp_path / "url").write_text("\x00not a url")
    with pytest.raises(Failure, match="no control plane"):
        nothing_said.open()
    # The user's own words count as they are: which control plane, or which key.
    Connection("http://127.0.0.1:4321", None, None).open()
    Connection(None, "a-key-that-was-given", None).open()
    Connection(None, None, tmp_path / "admin.key").open()
    announce(tmp_path, "http://127.0.0.1:4321")
    nothing_said.open()
    withdraw(tmp_path)
    monkeypatch.setenv("PADDOCK_KEY", "a-key-of-the-environment")
    nothing_said.open()
