"""Repositories of a session: the credential is put in outside, and what git is refused is told."""

import base64
import re
import secrets
import shlex
import subprocess
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from api.app import create_app
from orchestrator.control_plane import ControlPlane
from paddock.client import GitError, Paddock, PermissionDeniedError, Session
from tests.support.cli import run_beside
from tests.support.documents import blocks
from tests.support.egress import Names, NamesResolver, certificate, level_with
from tests.support.git_server import GitServer, make_repository
from tests.support.plane import opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOST, PARTLY, OTHER = "git.example", "partly.example", "other.example"
TOKEN = secrets.token_hex(20)
AUTHOR = "Ada <ada@example.org>"
_ROOT = Path(__file__).parents[2]
BUILD = _ROOT / "examples" / "levels" / "build.toml"
DOCUMENT = _ROOT / "docs" / "git.md"

_SEARCH = """
import os, re, sys
pattern = re.compile(sys.argv[1].encode())
for name, value in os.environb.items():
    if pattern.search(value):
        print(name.decode())
for place in ("/workspace", "/tmp"):
    for parent, _, names in os.walk(place):
        for name in names:
            with open(os.path.join(parent, name), "rb") as file:
                if pattern.search(file.read()):
                    print(file.name)
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the repositories, the server's certificate and the levels."""
    return tmp_path_factory.mktemp("git")


@pytest.fixture(scope="module")
def bare(directory: Path) -> Path:
    return make_repository(directory, "greet")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upstream(directory: Path, bare: Path) -> AsyncIterator[GitServer]:
    served = GitServer(bare.parent, TOKEN)
    runner = web.AppRunner(served.app)
    await runner.setup()
    tls = certificate(directory, HOST, PARTLY)
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    served.port = runner.addresses[0][1]
    yield served
    await runner.cleanup()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(
    sandbox_image: str, directory: Path, upstream: GitServer
) -> AsyncIterator[ControlPlane]:
    """`build` is the example with a rule for one host; `out` has the rule, and permits no git."""
    levels = directory / "levels"
    levels.mkdir()
    rule = f'\n[[egress.allow]]\nhost = "{HOST}"\nports = [{upstream.port}]\ninspect = true\n'
    partly = rule.replace(HOST, PARTLY) + 'paths = ["/other/**"]\n'
    shown, _, _ = BUILD.read_text().partition("[[egress.allow]]")
    (levels / "build.toml").write_text(shown + rule + partly)
    (levels / "out.toml").write_text(level_with(rule))
    names = Names()
    names.answers = {name: [["127.0.0.1"]] for name in (HOST, PARTLY, OTHER)}
    async with opened(
        resolver=NamesResolver(names),
        image=sandbox_image,
        levels_dir=levels,
        ca_file=directory / "cert.pem",
    ) as plane:
        yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(plane: ControlPlane) -> AsyncIterator[str]:
    async with TestServer(create_app(plane)) as served:
        yield f"http://127.0.0.1:{served.port}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(plane: ControlPlane, url: str) -> AsyncIterator[Paddock]:
    key = (plane.settings.state_dir / "admin.key").read_text().strip()
    async with Paddock(url, key) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session(client: Paddock) -> Session:
    """With the secret of the git server."""
    session = await client.sessions.create(permission_level="build")
    await session.secrets.set("deploy", TOKEN, hosts=[HOST])
    return session


def _repository(upstream: GitServer, host: str = HOST) -> str:
    return f"https://{host}:{upstream.port}/greet.git"


def _git(bare: Path, *words: str) -> str:
    command = ["git", "-C", str(bare), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


async def _places(session: Session, text: str) -> list[str]:
    """Where in the sandbox's files and variables the text is; it isn't there by the search."""
    pattern = f"[{text[0]}]{re.escape(text[1:])}"
    return (await session.exec(argv=["python3", "-c", _SEARCH, pattern])).stdout.splitlines()


async def test_a_clone_has_the_branch_and_the_depth(session: Session, upstream: GitServer) -> None:
    place = await session.git.clone(
        _repository(upstream), branch="other", depth=1, path="shallow", secret="deploy"
    )
    assert place == "shallow"
    status = await session.git.status(place)
    assert (status.branch, status.upstream, status.clean) == ("other", "origin/other", True)
    assert (await session.exec("git -C shallow log --format=%s")).stdout == "greeting 1\n"


async def test_a_change_is_committed_and_pushed_and_the_token_stays_outside(
    session: Session, upstream: GitServer, bare: Path
) -> None:
    before = len(upstream.users)
    place = await session.git.clone(_repository(upstream), secret="deploy")
    assert place == "greet"
    await session.files.write("greet/greeting.txt", b"hello world\n")
    await session.files.write("greet/new file.txt", b"new\n")

    status = await session.git.status(place)
    assert [(each.file, each.kind, each.unstaged) for each in status.changes] == [
        ("greeting.txt", "changed", "M"),
        ("new file.txt", "untracked", None),
    ]
    assert "\n-hello 2\n+hello world\n" in await session.git.diff(place)
    assert await session.git.diff(place, files=["new file.txt"]) == ""

    some = await session.git.commit("new", path=place, author=AUTHOR, files=["new file.txt"])
    assert [each.file for each in (await session.git.status(place)).changes] == ["greeting.txt"]
    made = await session.git.commit("Greet all\n\nWhy", path=place, author=AUTHOR)
    status = await session.git.status(place)
    assert (status.commit, status.ahead, status.clean) == (made, 2, True)
    assert "+hello world" in await session.git.diff(place, base="origin/main")

    await session.git.push(place, secret="deploy")
    assert (await session.git.status(place)).ahead == 0
    await session.git.push(place, branch="topic", secret="deploy")
    logged = _git(bare, "log", "-2", "--format=%H %an %ae %cn %s", "topic")
    assert logged.splitlines() == [
        f"{made} Ada ada@example.org Ada Greet all",
        f"{some} Ada ada@example.org Ada new",
    ]
    # The server received the token, and the sandbox never had it.
    assert set(upstream.users[before:]) == {"x-access-token"}
    basic = base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()
    assert await _places(session, "hello world") == ["/workspace/greet/greeting.txt"]
    assert await _places(session, TOKEN) == await _places(session, basic) == []
    record = "".join([line async for line in session.audit.export()])
    assert '"secrets":["deploy"]' in record
    assert TOKEN not in record
    assert basic not in record


async def test_without_a_secret_git_asks_nobody_and_says_what_to_give(
    session: Session, upstream: GitServer
) -> None:
    with pytest.raises(GitError) as caught:
        await session.git.clone(_repository(upstream), path="none")
    assert "git clone failed: could not read Username" in caught.value.what
    assert "`secret`" in (caught.value.remedy or "")
    assert upstream.refused[-1] == ""


@pytest.mark.parametrize("host", [PARTLY, OTHER])
async def test_a_host_that_is_denied_is_named_with_its_rule(
    session: Session, upstream: GitServer, host: str
) -> None:
    with pytest.raises(GitError) as caught:
        await session.git.clone(_repository(upstream, host), path="denied", secret="deploy")
    assert caught.value.what == f"the way out denies {host}:{upstream.port} by rule not-listed"
    (draft,) = [each for each in (await session.egress.drafts()).items if each.host == host]
    command = f"`paddock egress allow {session.id} --draft {draft.number}`"
    assert command in (caught.value.remedy or "")


async def test_a_level_that_does_not_permit_git_says_so(
    client: Paddock, upstream: GitServer
) -> None:
    session = await client.sessions.create(permission_level="out")
    with pytest.raises(PermissionDeniedError, match="git") as caught:
        await session.git.clone(_repository(upstream))
    assert caught.value.rule == "command-allowlist"


async def test_a_push_that_would_lose_commits_is_refused(
    session: Session, upstream: GitServer
) -> None:
    place = await session.git.clone(_repository(upstream), path="behind", secret="deploy")
    await session.exec("git -C behind reset -q --hard HEAD~1")
    with pytest.raises(GitError, match="nothing to commit"):
        await session.git.commit("nothing", path=place, author=AUTHOR)
    await session.files.write("behind/greeting.txt", b"hello again\n")
    await session.git.commit("again", path=place, author=AUTHOR)
    with pytest.raises(GitError, match="failed to push") as caught:
        await session.git.push(place, secret="deploy")
    assert "fetch and merge" in (caught.value.remedy or "")
    await session.git.push(place, force=True, secret="deploy")
    assert (await session.git.status(place)).ahead == 0


async def test_a_directory_that_is_no_repository_is_told(session: Session) -> None:
    await session.files.mkdir("empty")
    with pytest.raises(GitError, match="not a git repository") as caught:
        await session.git.status("empty")
    assert "`path`" in (caught.value.remedy or "")


@pytest.mark.parametrize("language", ["python", "sh"])
async def test_what_the_document_says_works(
    plane: ControlPlane,
    url: str,
    client: Paddock,
    upstream: GitServer,
    bare: Path,
    tmp_path: Path,
    language: str,
) -> None:
    (text,) = [each.text for each in blocks(DOCUMENT.read_text()) if each.language == language]
    for shown, here in (
        ("https://github.com/our-team/greet", _repository(upstream).removesuffix(".git")),
        ("github.com", HOST),
        ("deploy.token", str(tmp_path / "deploy.token")),
        ("--branch hello", "--branch hello-sh"),
    ):
        text = text.replace(shown, here)
    if language == "python":
        names: dict[str, Any] = {"p": client, "token": TOKEN}
        exec(f"async def snippet():\n{textwrap.indent(text, '    ')}", names)
        await names["snippet"]()
        assert _git(bare, "log", "-1", "--format=%s", "hello") == "Say hello\n"
        return
    (tmp_path / "deploy.token").write_text(TOKEN)
    web_1 = await client.sessions.create(id="web-1", permission_level="build")
    key = (plane.settings.state_dir / "admin.key").read_text().strip()
    for line in text.splitlines():
        paddock, *words = shlex.split(line)
        done = await run_beside(*words, "--url", url, "--key", key)
        assert (paddock, done.status) == ("paddock", 0), (line, done.err)
        if "clone" in words:
            await web_1.files.write("greet/greeting.txt", b"hello\n")
    assert _git(bare, "log", "-1", "--format=%an %s", "hello-sh") == "Ada Say hello\n"


async def test_a_run_begins_in_a_repository(
    plane: ControlPlane, client: Paddock, url: str, upstream: GitServer
) -> None:
    await client.secrets.set("runs", TOKEN, hosts=[HOST])
    key = (plane.settings.state_dir / "admin.key").read_text().strip()
    repository = ("--git", _repository(upstream), "--git-branch", "other", "--git-secret", "runs")
    words = ("--level", "build", *repository, "--", "git", "log", "--format=%D %s")
    done = await run_beside("run", "--url", url, "--key", key, *words)
    assert done.status == 0, done.err
    assert "HEAD -> other, " in done.out
    assert done.out.endswith(" greeting 1\n")
    await client.secrets.remove("runs")


async def test_the_command_line_clones_commits_and_pushes(
    plane: ControlPlane, url: str, session: Session, upstream: GitServer, bare: Path
) -> None:
    key = (plane.settings.state_dir / "admin.key").read_text().strip()

    async def paddock(*words: str) -> str:
        done = await run_beside("git", *words, "--url", url, "--key", key)
        assert done.status == 0, done.err
        return done.out

    cloned = await paddock(
        "clone", session.id, _repository(upstream), "cli", "-b", "other", "--secret", "deploy"
    )
    assert cloned == "cli\n"
    await session.files.write("cli/greeting.txt", b"hello there\n")
    at = ("--path", "cli")
    assert await paddock("status", session.id, *at) == ".M greeting.txt\n"
    assert "+hello there\n" in await paddock("diff", session.id, *at)
    commit = await paddock("commit", session.id, *at, "-m", "Greet there", "--author", AUTHOR)
    await paddock("push", session.id, *at, "--secret", "deploy")
    assert _git(bare, "rev-parse", "other") == commit
