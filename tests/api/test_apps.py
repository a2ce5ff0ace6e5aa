"""Apps whose hands are sandboxes: commands, files, levels, and what is left at the end."""

import runpy
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from paddock import Paddock
from paddock.app import App, LevelDiffersError
from tests.api.conftest import ADMIN_KEY, Api
from tests.support.apps import ScriptedModel, calls
from tests.support.documents import blocks
from tests.support.fake_agent import Play
from tests.support.models import Answer, calling, model_server
from tests.support.server import ROOT


@pytest_asyncio.fixture
async def paddock(api: Api) -> AsyncIterator[Paddock]:
    async with Paddock(f"http://127.0.0.1:{api.server.port}", ADMIN_KEY) as paddock:
        yield paddock


async def live(paddock: Paddock) -> set[str]:
    return {each.id for each in await paddock.sessions.list() if each.info.status == "active"}


async def test_a_model_works_in_a_sandbox(paddock: Paddock, api: Api) -> None:
    model = ScriptedModel(
        calls(("write_file", {"path": "a.txt", "text": "one\ntwo\n"})),
        calls(
            ("read_file", {"path": "a.txt", "first_line": 2, "lines": 1}),
            ("list_files", {}),
            ("exec", {"argv": ["ls"]}),
            ("search_files", {"text": "two"}),
            ("exec", {}),
            ("exec", {"command": "curl example.org"}),
            ("read_file", {"path": "absent"}),
        ),
    )
    async with App(paddock, model=model, level="low") as app:
        session = await app.session("user-123")
        assert await live(paddock) == set()  # a sandbox starts with the first run
        model.gate.clear()
        run = session.send("Work.")
        await model.asked.wait()
        api.agent.plays["ls"] = Play(stdout=b"a.txt\n")
        api.agent.plays["grep"] = Play(stdout=b"./a.txt:2:two\n")
        model.gate.set()
        assert (await run).text == "done"
        assert await live(paddock) == {"user-123"}
        wrote, read, listed, ran, found, neither, refused, absent = (
            text for role, text in model.said() if role == "tool"
        )
        assert wrote == "8 bytes are written"
        assert read == "two\n"
        assert "a.txt" in listed
        assert ran == '{"exit_code":0,"stdout":"a.txt\\n","stderr":""}'
        assert found == "./a.txt:2:two\n"
        assert neither == "error: exactly one of argv and command must be given"
        assert refused.startswith("error: ")
        assert "curl" in refused
        assert absent.startswith("error: ")
    assert await live(paddock) == set()


async def test_a_session_comes_back_to_its_workspace(paddock: Paddock, api: Api) -> None:
    async with App(paddock, model=ScriptedModel(), max_active=1) as app:
        await (await app.session("a")).send("x")
        await app.session("b")
        assert await live(paddock) == set()
        workspaces = api.plane.settings.workspaces_dir
        assert workspaces is not None
        assert (workspaces / "a").exists()
        session = await app.session("a")
        assert (await session.send("y")).status == "completed"
        assert await live(paddock) == {"a"}


async def test_an_ephemeral_session_leaves_no_workspace(paddock: Paddock, api: Api) -> None:
    async with App(paddock, model=ScriptedModel()) as app:
        await app.run("x")
    workspaces = api.plane.settings.workspaces_dir
    assert workspaces is not None
    assert list(workspaces.glob("app-*")) == []


async def test_a_sandbox_of_another_level_is_left_alone(paddock: Paddock) -> None:
    await paddock.sessions.create(id="a", permission_level="high")
    async with App(paddock, model=ScriptedModel(), level="low") as app:
        session = await app.session("a")
        with pytest.raises(LevelDiffersError, match="the sandbox a is at high, not low"):
            await session.send("x")
    assert await live(paddock) == {"a"}


def shown_in_readme() -> tuple[str, str]:
    """The program in the section "Apps", and what it prints."""
    _, _, section = (ROOT / "README.md").read_text().partition("## Apps\n")
    program, printed = (f"{block.text}\n" for block in list(blocks(section))[:2])
    return program, printed


async def test_the_example_does_and_prints_what_the_readme_shows(
    paddock: Paddock,
    api: Api,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers = [
        calling(("ticket", {"number": 7}), stream=False),
        calling(("write_file", {"path": "notes.txt", "text": "hello"}), stream=False),
        calling(("review", {"task": "Does notes.txt say hello?"}), stream=False),
        Answer("It does.", stream=False),
        Answer("notes.txt says hello, and the review agrees.", stream=False),
    ]
    async with model_server(*answers) as server:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{api.server.port}")
        monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
        monkeypatch.setenv("MODEL_URL", server.url)
        monkeypatch.setenv("MODEL", "small")
        await runpy.run_path(str(ROOT / "examples" / "app.py"))["main"]()
    assert api.agent.files["notes.txt"] == b"hello"
    program, printed = shown_in_readme()
    assert program == (ROOT / "examples" / "app.py").read_text()
    assert printed == capsys.readouterr().out
    [told] = [each for each in server.bodies[-1]["messages"] if each["content"] == "It does."]
    assert told["role"] == "tool"
    assert (tmp_path / "app-sessions" / "user-123.json").exists()
    assert await live(paddock) == set()
