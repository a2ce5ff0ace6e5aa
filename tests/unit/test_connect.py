"""Which control plane is meant, and with which key, from what the user has set."""

import json
import stat
from pathlib import Path

import pytest

from paddock import Paddock, PaddockSync
from paddock.connect.address import Address, find_address
from paddock.connect.contexts import (
    Context,
    Contexts,
    contexts_path,
    load_contexts,
    save_contexts,
)
from paddock.connect.errors import NoAddressError

ONE = Context("http://one.example:1", "key-of-one")
TWO = Context("http://two.example:2/", "key-of-two")


class Here:
    """The control plane of this machine."""

    announced = True

    def find_url(self) -> str:
        return "http://127.0.0.1:8700"

    def find_key(self) -> str:
        return "key-of-here"

    def check_announced(self) -> None:
        if not self.announced:
            raise NoAddressError("it does not listen", listens=False)


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PADDOCK_URL", "PADDOCK_KEY", "PADDOCK_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PADDOCK_STATE_DIR", str(tmp_path / "state"))


def store() -> None:
    save_contexts(Contexts({"one": ONE, "two": TWO}, "one"))


def test_without_anything_it_is_the_one_of_this_machine() -> None:
    assert find_address(local=Here) == Address("http://127.0.0.1:8700", "key-of-here")
    silent = Here()
    silent.announced = False
    with pytest.raises(NoAddressError):
        find_address(local=lambda: silent)
    assert find_address("http://x:1", local=lambda: silent).key == "key-of-here"


def test_arguments_come_before_variables_before_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    store()
    assert find_address(local=Here) == Address(ONE.url, ONE.key)
    monkeypatch.setenv("PADDOCK_CONTEXT", "two")
    assert find_address(local=Here) == Address(TWO.url, TWO.key)
    monkeypatch.setenv("PADDOCK_URL", "http://set.example")
    monkeypatch.setenv("PADDOCK_KEY", "key-of-the-environment")
    found = Address("http://set.example", "key-of-the-environment")
    assert find_address(local=Here) == found
    assert find_address("http://a:1", "k", local=Here) == Address("http://a:1", "k")
    # A context that is named is used with its own key.
    assert find_address(context="one", local=Here) == Address(ONE.url, ONE.key)
    assert find_address(None, "mine", context="one") == Address(ONE.url, "mine")


def test_a_key_of_a_context_goes_only_to_its_url(monkeypatch: pytest.MonkeyPatch) -> None:
    store()
    assert find_address("http://elsewhere:9", local=Here).key == "key-of-here"
    assert find_address("http://two.example:2", local=Here).key == TWO.key
    monkeypatch.setenv("PADDOCK_URL", "http://two.example:2/")
    assert find_address(local=Here).key == TWO.key


def test_a_key_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "key"
    with pytest.raises(NoAddressError, match="No such file"):
        find_address("http://a:1", key_file=file)
    file.write_text("\n")
    with pytest.raises(NoAddressError, match="is empty"):
        find_address("http://a:1", key_file=file)
    file.write_text("the-key\n")
    assert find_address("http://a:1", key_file=file).key == "the-key"


def test_the_file_is_for_its_user_only_and_keeps_what_it_has() -> None:
    assert load_contexts() == Contexts()
    store()
    path = contexts_path()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert load_contexts() == Contexts({"one": ONE, "two": TWO}, "one")
    assert [each.name for each in path.parent.iterdir()] == ["contexts.json"]
    path.chmod(0o640)
    with pytest.raises(NoAddressError, match="chmod 600"):
        find_address()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"contexts": 1}', "[" * 100_000, "\x00"])
def test_a_file_of_another_form_is_named(text: str) -> None:
    store()
    contexts_path().write_text(text)
    with pytest.raises(NoAddressError, match=r"contexts\.json has no contexts"):
        load_contexts()


def test_a_current_one_that_is_gone_is_none() -> None:
    store()
    document = json.loads(contexts_path().read_text())
    contexts_path().write_text(json.dumps({**document, "current": "gone"}))
    assert load_contexts().current is None
    assert load_contexts().without("one").name_of_url(ONE.url) is None
    for wrong in ("", "../x", "a b", "-a"):
        with pytest.raises(NoAddressError):
            Contexts().with_one(wrong, ONE)
    with pytest.raises(NoAddressError, match="there is no context"):
        Contexts().using("one")


async def test_clients_need_no_arguments() -> None:
    store()
    async with Paddock() as client:
        assert repr(client) == "<Paddock http://one.example:1>"
    async with Paddock(context="two") as client:
        assert repr(client) == "<Paddock http://two.example:2>"
    assert "key-of" not in repr(find_address())


def test_the_blocking_one_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_URL", "http://set.example")
    monkeypatch.setenv("PADDOCK_KEY", "k")
    with PaddockSync() as client:
        assert repr(client) == "<PaddockSync http://set.example>"
