"""Commands for operations of the API that have no other face on the command line."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from paddock import Paddock
from paddock.cli.exits import Status
from tests.api.conftest import ADMIN_KEY, Api
from tests.support.cli import Ended, run_beside
from tests.support.fake_agent import Play

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
async def session(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_URL", str(api.server.make_url("/")))
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    await api.session(id="web-1", permission_level="high")


async def done(*words: str, stdin: bytes = b"") -> Ended:
    ended = await run_beside(*words, stdin=stdin)
    assert ended.status == Status.OK, ended
    return ended


async def refused(*words: str) -> str:
    ended = await run_beside(*words)
    assert (ended.status, ended.out) == (Status.USAGE, ""), ended
    return ended.line


async def test_directories_links_and_moves(api: Api) -> None:
    await done("files", "mkdir", "web-1", "build/logs")
    await done("files", "put", "web-1", "-", "draft.txt", stdin=b"text")
    await done("files", "mv", "web-1", "draft.txt", "report.txt")
    await done("files", "ln", "web-1", "report.txt", "latest")
    asked = dict(api.agent.requests)
    assert asked["file.mkdir"]["path"].endswith("build/logs")
    assert api.agent.files["report.txt"] == b"text"
    assert asked["file.symlink"]["target"] == "report.txt"


async def test_whether_it_is_ready(api: Api) -> None:
    ended = await run_beside("ready", "--json")
    found = json.loads(ended.out)
    assert ended.status == (Status.OK if found["status"] == "ready" else Status.FAILED)
    table = (await run_beside("ready")).out
    assert all(name in table for name in found["checks"])


async def test_models_and_images() -> None:
    assert json.loads((await done("models", "--json")).out) == []
    (image,) = json.loads((await done("sessions", "images", "--json")).out)
    assert (await done("sessions", "images", "-q")).out == f"{image['name']}\n"


async def test_usage_is_shown_and_reported(api: Api) -> None:
    shown = json.loads((await done("usage", "--json")).out)
    assert shown.keys() == {"round", "sampled_at", "interval", "host", "items", "next", "missing"}
    await done("usage")
    reported = await done("usage", "web-1", "--tokens", "15", "--cost", "0.5", "--json")
    assert json.loads(reported.out)["consumed"]["tokens"] == 15
    assert "--tokens and --cost go with SESSION" in await refused("usage", "--tokens", "1")


async def test_tools_are_offered_to_a_session_and_at_a_level() -> None:
    of_session = json.loads((await done("tools", "offered", "web-1", "--json")).out)
    assert "python3.calculate" in {each["name"] for each in of_session}
    for words in (("--level", "low"), ()):
        listed = (await done("tools", "offered", *words, "-q")).out.split()
        assert listed == [each["name"] for each in of_session]
    assert "give one of" in await refused("tools", "offered", "web-1", "--level", "low")


async def test_keys_over_the_api(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--set", "max_sessions=3", "--set", "max_cpus=1.5", "--set", "max_level=low")
    key = (await done("api-keys", "create", "ci", *words, "--set", "tools=psql,gdb")).out.strip()
    (made,) = [
        each
        for each in json.loads((await done("api-keys", "list", "--json")).out)
        if each["name"] == "ci"
    ]
    assert (made["role"], made["max_sessions"], made["max_cpus"]) == ("operator", 3, 1.5)
    assert (made["max_level"], made["tools"]) == ("low", ["psql", "gdb"])
    assert (await done("sessions", "list", "--key", key)).out == ""
    wrong = await run_beside("api-keys", "create", "other", "--set", "max_sessions=many")
    assert wrong.status != Status.OK
    assert "max_sessions" in wrong.line
    await done("api-keys", "revoke", "ci")
    assert (await run_beside("sessions", "list", "--key", key)).status == Status.REFUSED


async def test_keys_with_the_client(api: Api) -> None:
    expiry = datetime(2199, 1, 31, tzinfo=UTC)
    async with Paddock(str(api.server.make_url("/")), ADMIN_KEY) as paddock:
        made = await paddock.keys.create("ci", role="operator", expires_at=expiry, images=["dev"])
        assert (made.expires_at, made.images) == (expiry, ["dev"])
        assert "ci" in {each.name for each in await paddock.keys.list()}
        await paddock.keys.revoke("ci")
        assert "ci" not in {each.name for each in await paddock.keys.list()}
        with pytest.raises(TypeError, match="colour"):
            await paddock.keys.create("ci", colour="red")  # type: ignore[call-arg]


async def test_what_was_denied_most() -> None:
    await done("sessions", "create", "--id", "low-1", "--level", "low")
    for _ in range(2):
        await run_beside("exec", "low-1", "--", "curl", "x")
    (group,) = json.loads((await done("audit", "denials", "--json")).out)
    assert (group["session_id"], group["times"]) == ("low-1", 2)
    assert (await done("audit", "denials", "-q")).out == "low-1\n"
    assert (await done("audit", "denials", "--since", "2199-01-01")).out == ""


async def test_memory_of_a_session() -> None:
    assert "begins with nothing" in (await done("memory", "bootstrap", "web-1")).err
    await done("memory", "add", "Run the tests.", "--kind", "sop")
    assert "Run the tests." in (await done("memory", "bootstrap", "web-1")).out
    words = ("--tag", "build", "--json")
    (note,) = json.loads((await done("memory", "write", "web-1", "Needs src.", *words)).out)
    assert (note["session"], note["tags"]) == ("web-1", ["build"])
    assert (await done("memory", "search", "web-1", "src", "-q")).out == f"{note['id']}\n"


async def test_a_session_is_created_once() -> None:
    words = ("sessions", "create", "--id", "new-1", "--ensure", "--json")
    first, again = [json.loads((await done(*words)).out) for _ in range(2)]
    assert first["handle"] is not None
    assert (again["id"], again["created_at"]) == ("new-1", first["created_at"])
    assert again["handle"] is None
    assert "--ensure goes with --id" in await refused("sessions", "create", "--ensure")


async def test_a_repository_is_cloned_before_the_command(api: Api, tmp_path: Path) -> None:
    api.agents.plays["make"] = Play(b"made\n")
    words = ("--git", "https://git.example/team/greet.git", "--git-branch", "main")
    ran = await done("run", "--level", "high", "--git-secret", "deploy", *words, "--", "make")
    assert ran.out == "made\n"
    commands = [params for name, params in api.agent.requests if name == "exec"]
    assert [each["argv"][0] for each in commands] == ["git", "make"]
    clone, made = commands
    assert clone["argv"][-7:] == [
        *("clone", "--quiet", "--branch=main", "--depth=1", "--"),
        *("https://git.example/team/greet.git", "greet"),
    ]
    assert made["cwd"].endswith("greet")
    await done("run", "--level", "high", *words, "--cwd", "sub", "--", "make")
    last = [params for name, params in api.agent.requests if name == "exec"][-1]
    assert last["cwd"].endswith("sub")


async def test_a_repository_that_cannot_be_cloned_ends_the_session(api: Api) -> None:
    api.agents.plays["git"] = Play(b"", b"fatal: not found\n", exit_code=128)
    words = ("--git", "https://git.example/team/greet.git", "--", "make")
    ended = await run_beside("run", "--level", "high", *words)
    assert ended.status == Status.FAILED
    assert "not found" in ended.err
    assert (await done("sessions", "list", "--status", "active", "-q")).out == "web-1\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--git-branch", "main"), "--git-branch and --git-secret go with --git"),
        (("--git-secret", "deploy"), "--git-branch and --git-secret go with --git"),
        (("--git", "https://x.example/y", "--pack", "pack.json"), "give one of --pack and --git"),
    ],
)
async def test_options_that_do_not_fit(words: tuple[str, ...], said: str) -> None:
    assert said in await refused("run", *words, "--", "make")
