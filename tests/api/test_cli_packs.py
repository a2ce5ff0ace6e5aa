"""Context packs on the command line: made, used, and refined after a miss."""

import asyncio
import json
from pathlib import Path

import pytest

from paddock import PaddockSync
from paddock.cli.exits import Status
from tests.api.conftest import ADMIN_KEY, Api
from tests.support.cli import run_beside
from tests.support.fake_agent import Play
from tests.support.until import until

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def directory(api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{api.server.port}")
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("a\n")
    (tmp_path / "src" / "b.py").write_text("canary\n")
    return tmp_path


async def packed(*arguments: str) -> str:
    made = await run_beside("pack", *arguments)
    assert made.status == 0, made.err
    return made.out


async def test_a_pack_is_printed_and_shown(directory: Path) -> None:
    made = await run_beside(
        "pack", "src", "--shell", "cat *", "--write", "out", "--mode", "soft_fail"
    )
    told = json.loads(made.out)
    assert [entry["path"] for entry in told["entries"]] == ["/workspace/a.py", "/workspace/b.py"]
    assert told["tool_allowlist"] == ["Execute", "ListFiles", "Read", "Search", "Write"]
    assert (told["mode"], told["shell_allowlist"]) == ("soft_fail", ["cat *"])
    for text in ("/workspace/a.py", "2 B", "total", "9 B", "cat *", told["manifest_id"]):
        assert text in made.err
    # In any order, it is the same pack.
    listed = await packed("src/b.py", "src/a.py"), await packed("src/a.py", "src/b.py")
    assert listed[0] == listed[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("missing",), "missing does not exist"),
        (("src", "--tools", "Everything"), "tool_allowlist.0"),
        (("src", "--write", "../x"), "write_allowlist.0"),
        (("src", "--mode", "off"), "mode"),
        (("src/a.py", "--root", "src/.."), ""),
        (("src", "--root", "src/a.py"), "src"),
    ],
)
async def test_what_is_no_pack_is_refused(arguments: tuple[str, ...], said: str) -> None:
    made = await run_beside("pack", *arguments)
    assert (made.status == Status.USAGE) is bool(said)
    assert said in made.err


async def test_a_command_runs_limited_to_a_pack(api: Api, directory: Path) -> None:
    (directory / "pack.json").write_text(await packed("src/a.py", "--shell", "cat *"))
    api.agents.plays["cat"] = Play(b"a\n")
    ended = await run_beside("run", "--pack", "pack.json", "--", "cat", "src/a.py")
    assert (ended.status, ended.out) == (0, "a\n"), ended.err
    assert set(api.agents.files) == {"src/a.py"}  # and nothing else was uploaded
    configuration = api.agent.configuration
    assert configuration is not None
    assert configuration["consume"]["entries"] == ["src/a.py"]
    (first, second) = sorted(
        (await api.json("GET", "/api/sessions?status=ended"))["items"],
        key=lambda item: item["incarnation"],
    )
    assert first["consume"] is None
    assert second["consume"]["mode"] == "hard_fail"
    # A file that changed here is not what the pack has.
    (directory / "src" / "a.py").write_text("other\n")
    ended = await run_beside("run", "--pack", "pack.json", "--", "cat", "src/a.py")
    assert "/workspace/src/a.py" in ended.line
    assert (await api.json("GET", "/api/sessions?status=active"))["items"] == []
    (directory / "pack.json").write_text("{")
    ended = await run_beside("run", "--pack", "pack.json", "--", "ls")
    assert ended.status == Status.USAGE


async def test_a_session_that_missed_a_file_is_refined(api: Api, directory: Path) -> None:
    pack = json.loads(await packed("src/a.py", "--shell", "cat *"))
    api.agents.files["src/a.py"] = b"a\n"
    await api.session(id="web", consume=pack, work_id="w-1")
    url = "/api/sessions/web/reads"
    await api.problem(403, "permission_denied", "POST", url, json={"path": "src/b.py"})
    missed = await run_beside("misses", "web")
    assert "/workspace/src/b.py" in missed.out
    assert "CTX-ALLOWLIST-001" in missed.out
    assert "refined 0 of 10 times" in missed.err
    ended = await run_beside("refine", "web", "--add", "src/b.py", "--json")
    assert ended.status == 0, ended.err
    told = json.loads(ended.out)
    assert told["consume"]["refinement_count"] == 1
    assert (told["work_id"], told["handle"][:2]) == ("w-1", "H-")
    answer = await api.call("POST", url, json={"path": "src/b.py"}, key=told["handle"])
    assert await answer.read() == b"canary\n"
    state = json.loads((await run_beside("misses", "web", "--json")).out)
    assert [entry["path"] for entry in state["pack"]["entries"]] == [
        "/workspace/src/a.py",
        "/workspace/src/b.py",
    ]
    ended = await run_beside("refine", "web", "--add", "src/b.py")
    assert ended.status != 0  # it lives
    assert (await api.json("GET", "/api/sessions/web"))["status"] == "active"


async def test_a_command_that_misses_keeps_its_session(api: Api, directory: Path) -> None:
    (directory / "pack.json").write_text(await packed("src/a.py", "--shell", "cat *"))
    api.agents.plays["cat"] = Play(holds=True)

    running = asyncio.create_task(run_beside("run", "--pack", "pack.json", "--", "cat", "src/b.py"))
    await until(lambda: _asked(api))
    args = {"path": "/workspace/src/b.py", "program": "/bin/cat", "manifest_id": "x"}
    api.agent.emit("read", decision="deny", rule="CTX-ALLOWLIST-001", args=args)
    ended = await running
    assert ended.status != 0
    assert "missed: /workspace/src/b.py" in ended.err
    (shown,) = (await api.json("GET", "/api/sessions?status=aborted"))["items"]
    assert f"paddock refine {shown['id']}" in ended.err


async def test_the_client_without_an_event_loop(api: Api) -> None:
    def use() -> None:
        url = f"http://127.0.0.1:{api.server.port}"
        with PaddockSync(url, ADMIN_KEY) as paddock:
            api.agents.files["a"] = b"text"
            session = paddock.sessions.create(
                id="web", consume={"entries": [{"path": "a"}], "tool_allowlist": ["Read"]}
            )
            assert session.consume.read("a") == b"text"
            assert session.consume.get().pack.entries[0].path == "/workspace/a"
            assert paddock.sessions.consume("web").get().misses == []

    await asyncio.to_thread(use)


def _asked(api: Api) -> bool:
    """Whether an agent was told to run something."""
    agents = api.agents.by_run_dir.values()
    return any(name == "exec" for agent in agents for name, _ in agent.requests)


async def test_what_a_command_reads_becomes_a_pack(api: Api) -> None:
    api.agents.plays["python3"] = Play(holds=True)
    arguments = ("pack", "--observe", "--root", ".", "--level", "high", "--", "python3", "-m", "a")
    running = asyncio.create_task(run_beside(*arguments))
    await until(lambda: _asked(api))
    for path in ("/workspace/src/a.py", "/workspace/src", "/workspace/missing", "/opt/lib"):
        args = {"path": path, "program": "/usr/bin/python3", "manifest_id": "x"}
        api.agent.emit("read", decision="allow", rule="CTX-ALLOWLIST-001", args=args)
    api.agent.end(next(iter(api.agent._running)))
    made = await running
    assert made.status == 0, made.err
    told = json.loads(made.out)
    assert [entry["path"] for entry in told["entries"]] == ["/workspace/src/a.py"]
    assert told["shell_allowlist"] == ["python3 -m a"]
    assert "of the image: /opt/lib" in made.err
    assert set(api.agents.files) == {"src/a.py", "src/b.py"}
    found = (await api.json("GET", "/api/sessions?status=ended"))["items"]
    assert {item["status"] for item in found} == {"completed"}
