"""Several control planes: `paddock login`, `paddock context`, and the client's one-liner."""

import asyncio
import json
import stat
from pathlib import Path

import pytest

import paddock
from paddock.connect.contexts import contexts_path
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, Api
from tests.support.cli import run_beside
from tests.support.fake_agent import Play

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PADDOCK_URL", "PADDOCK_KEY", "PADDOCK_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PADDOCK_STATE_DIR", str(tmp_path / "state"))


async def login(api: Api, name: str, key: str) -> None:
    url = f"http://127.0.0.1:{api.server.port}"
    ended = await run_beside("login", url, "--name", name, stdin=f"{key}\n".encode())
    assert ended.status == 0, ended.err
    assert key not in ended.err + ended.out


async def test_a_key_is_tried_stored_used_and_forgotten(api: Api) -> None:
    await login(api, "work", ADMIN_KEY)
    assert stat.S_IMODE(contexts_path().stat().st_mode) == 0o600
    await api.session(id="web-1")
    assert "web-1" in (await run_beside("sessions", "list")).out
    await login(api, "ops", OPERATOR_KEY)
    assert "web-1" not in (await run_beside("sessions", "list")).out
    assert "web-1" in (await run_beside("sessions", "list", "--context", "work")).out
    assert (await run_beside("context", "use", "work")).status == 0
    assert "web-1" in (await run_beside("sessions", "list")).out
    listed = await run_beside("context", "list", "--json")
    assert [(each["name"], each["current"]) for each in json.loads(listed.out)] == [
        ("work", True),
        ("ops", False),
    ]
    assert ADMIN_KEY not in listed.out
    assert (await run_beside("context", "rm", "work")).status == 0
    assert (await run_beside("sessions", "list", "--context", "work")).status == 2
    assert ADMIN_KEY not in contexts_path().read_text()


async def test_a_key_that_is_refused_is_not_stored(api: Api) -> None:
    url = f"http://127.0.0.1:{api.server.port}"
    assert (await run_beside("login", url, stdin=b"pdk_no-such-key-at-all\n")).status == 4
    assert (await run_beside("login", url)).status == 2
    assert (await run_beside("login", "ftp://x", "--name", "x", stdin=b"k\n")).status == 2
    assert not contexts_path().exists()
    assert (await run_beside("context", "use", "none")).status == 2


async def test_one_line_is_a_session(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{api.server.port}")
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    api.agents.plays["uname"] = Play(b"Linux\n")

    def work() -> str:
        with paddock.session(permission_level="high") as s:
            assert s.info.permission_level == "high"
            return s.exec("uname -s").stdout

    assert await asyncio.to_thread(work) == "Linux\n"
    async with paddock.session(id="named", permission_level="high") as session:
        assert (await session.exec("uname -s")).stdout == "Linux\n"
    with pytest.raises(ZeroDivisionError):
        async with paddock.session():
            raise ZeroDivisionError
    views = (await api.json("GET", "/api/sessions"))["items"]
    assert {each["status"] for each in views} == {"completed"}
    kept = [Path(each["workspace"]["root_dir"]).exists() for each in views]
    assert dict(zip([each["id"] == "named" for each in views], kept, strict=True)) == {
        True: True,
        False: False,
    }
