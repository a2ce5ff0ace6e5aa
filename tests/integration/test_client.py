"""The Python client, a control plane in a separate process, and real sandboxes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from paddock import (
    Exit,
    Output,
    Paddock,
    PaddockSync,
    PermissionDeniedError,
    Session,
    StartData,
    ValidationError,
)
from paddock.audit.chain import verify_chain
from paddock.contract.words import MAX_ARGUMENT_BYTES
from tests.support.leaks import NOTHING, left_behind
from tests.support.limits import PROGRAM_SECONDS
from tests.support.server import Server, serving


@pytest.fixture
async def server(sandbox_image: str, tmp_path: Path) -> AsyncIterator[Server]:
    """A server whose sessions are all closed at the end, with nothing left of them."""
    async with serving(tmp_path / "state", PADDOCK_IMAGE=sandbox_image) as server:
        yield server
        async with Paddock(server.url, server.key) as paddock:
            for session in await paddock.sessions.list():
                await session.close(purge=True)
        assert left_behind(server.state_dir) == NOTHING


@pytest.fixture
async def paddock(server: Server) -> AsyncIterator[Paddock]:
    async with asyncio.timeout(PROGRAM_SECONDS), Paddock(server.url, server.key) as client:
        yield client


async def test_directories_and_commands(paddock: Paddock, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "src").mkdir(parents=True)
    (source / "src" / "a.txt").write_text("alpha\n")
    (source / "secret").symlink_to("/etc/hostname")
    (source / "configure").write_text("#!/bin/sh\necho configured\n")
    (source / "configure").chmod(0o755)
    (source / "src" / "again").symlink_to("../configure")
    (source / "own").mkdir()
    async with await paddock.sessions.create(permission_level="high") as session:
        assert (await session.exec("mkdir -m 0700 own")).ok
        sent = await session.files.upload_dir(source)
        assert (await session.exec("stat -c %a own")).stdout == "700\n"
        assert (sent.files, sent.links, sent.skipped) == (2, 1, ("secret",))
        for program in ("./configure", "src/again"):
            assert (await session.exec(argv=[program])).stdout == "configured\n"
        result = await session.exec("cat src/a.txt")
        assert (result.stdout, result.exit_code) == ("alpha\n", 0)
        assert session.handle is not None
        own = await paddock.sessions.attach(session.id, session.handle)
        script = (
            "ln -s /etc/passwd link; ln -s / root; mkfifo pipe; mkdir -p x/y;"
            " echo beta > src/b.txt; touch $(printf '\\377')"
        )
        assert (await own.exec(argv=["sh", "-c", script])).ok
        got = await own.files.download_dir(".", target)
        assert (got.files, got.links) == (4, 1)
        assert target / "\udcff" in target.iterdir()
        assert (target / "src" / "again").readlink() == Path("../configure")
        assert (target / "configure").stat().st_mode & 0o777 == 0o755
        assert set(got.skipped) == {"link", "pipe", "root"}
        assert (target / "src" / "b.txt").read_text() == "beta\n"
        assert (target / "x" / "y").is_dir()
        info = await session.refresh()
        assert info.sandbox is not None
        assert info.processes
        await session.settings.set(permission_level="low")
        with pytest.raises(PermissionDeniedError) as denied:
            await own.exec("sh -c id")
        assert denied.value.rule == "command-allowlist"
        lines = [line async for line in session.audit.export()]
        assert verify_chain(lines, (result.audit.seq, result.audit.hash)).ok
        assert (await session.audit.verify()).ok
    assert session.info.status == "completed"


async def test_names_that_are_not_utf_8(paddock: Paddock, tmp_path: Path) -> None:
    """Made by a command, told by a watch, listed, read and transferred."""
    source = tmp_path / "source"
    (source / "\udcfe").mkdir(parents=True)
    (source / "\udcfe" / "local\udc80").write_text("local")
    async with await paddock.sessions.create(permission_level="high") as session:
        begun = asyncio.Event()

        async def touch() -> None:
            await begun.wait()
            await session.exec(argv=["sh", "-c", "printf x > $(printf '\\376\\\\xff')"])

        touching = asyncio.create_task(touch())
        async for change in session.files.watch(on_ready=begun.set):
            assert (change.kind, change.path) == ("create", r"\xfe\x5cxff")
            break
        await touching
        assert [each.path for each in (await session.files.list()).items] == [r"\xfe\x5cxff"]
        assert await session.files.read(r"\xfe\x5cxff") == b"x"
        assert (await session.files.upload_dir(source)).files == 1
        assert await session.files.read(r"\xfe/local\x80") == b"local"
        got = await session.files.download_dir(".", tmp_path / "got")
        assert (got.files, got.skipped) == (2, ())
        assert (tmp_path / "got" / "\udcfe" / "local\udc80").read_text() == "local"
        shell = await session.shells.create()
        answer = await shell.run("cd $'\\xfe'; pwd")
        assert (answer.exit_code, answer.cwd) == (0, r"/workspace/\xfe")
        lines = [line async for line in session.audit.export()]
        assert any(r"\\xfe\\x5cxff" in line for line in lines)
        assert (await session.audit.verify()).ok


async def test_a_stream_outlives_the_control_plane(server: Server, paddock: Paddock) -> None:
    session = await paddock.sessions.create(permission_level="high")
    script = "echo before; until [ -e go ]; do sleep 0.05; done; echo after; exit 3"
    seen: list[str] = []
    async with aclosing(session.exec_stream(argv=["sh", "-c", script])) as events:
        async for event in events:
            if isinstance(event, Output):
                seen.append(event.text)
                if event.text == "before\n":
                    await server.kill()
                    restarting = asyncio.create_task(_restart(server, session))
            elif isinstance(event, Exit):
                assert event.exit_code == 3
            else:
                assert isinstance(event, StartData)
    await restarting
    assert seen == ["before\n", "after\n"]


async def _restart(server: Server, session: Session) -> None:
    await server.start()
    await session.files.write("go", b"")


async def test_words_and_variables_up_to_the_kernels_limits(paddock: Paddock) -> None:
    session = await paddock.sessions.create(permission_level="high")
    count = "import os, sys; print(sum(map(len, sys.argv)), len(os.environ.get('A', '')))"
    argv = ["python3", "-c", count, *["é" * 65_000] * 13, "x" * (128 * 1024 - 1)]
    done = await session.exec(argv=argv, env={"A": "y" * 10_000})
    assert done.stdout.split() == [str(len("-c") + 65_000 * 13 + 128 * 1024 - 1), "10000"]
    # What is accepted runs, however much it is.
    room = MAX_ARGUMENT_BYTES - sum(len(word.encode()) + 9 for word in argv)
    full = [*argv, *["x" * 99_991] * (room // 100_000)]
    assert (await session.exec(argv=[*full, "x" * (room % 100_000 - 9)])).ok
    with pytest.raises(ValidationError, match="argv must have at most"):
        await session.exec(argv=[*full, "x" * (room % 100_000 - 8)])
    assert (await session.exec("true")).ok


async def test_without_an_event_loop(server: Server) -> None:
    def work() -> str:
        with PaddockSync(server.url, server.key) as paddock, paddock.sessions.create() as session:
            events = session.exec_stream("echo hello")
            return "".join(event.text for event in events if isinstance(event, Output))

    async with asyncio.timeout(PROGRAM_SECONDS):
        assert await asyncio.to_thread(work) == "hello\n"
