"""A listed file that somebody outside exchanges while commands read it: no other byte comes out.

The host, a parent, or another session of the same workspace can write there at any time.
"""

import hashlib
import secrets
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import ConflictError, PermissionDeniedError
from orchestrator.state.pack import Pack, PackFile
from paddock.contract.pack_form import ToolClass
from paddock.contract.words import Rationale
from tests.support.box import TESTER, Box
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

# As long as what is listed, so that no size tells them apart.
LISTED, CANARY = "listed-3b9d02\n", "canary-90c1e7\n"
COPY = "#!/bin/cat\n"
FILES = {
    "notes": LISTED,
    "src/notes": LISTED,
    "tool": f"{COPY}{LISTED}",
    "other/notes": CANARY,
    "secret": CANARY,
    "other-tool": f"{COPY}{CANARY}",
}
PACKED = ("notes", "src/notes", "tool")
CHANGED, UNLISTED = "CTX-TOCTOU-001", "CTX-ALLOWLIST-001"
Filled = Callable[[str], Awaitable[tuple[str, Path]]]
Exchange = Callable[[Path, str, str], None]


def pack(mode: str = "soft_fail") -> Pack:
    files = {
        f"/workspace/{name}": PackFile(
            f"/workspace/{name}", f"sha256:{hashlib.sha256(FILES[name].encode()).hexdigest()}"
        )
        for name in PACKED
    }
    members: dict[str, Any] = {"files": files, "tools": frozenset(ToolClass), "commands": ("*",)}
    return Pack("fix", "sha256:" + "0" * 64, mode, **members)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def filled(control_plane: ControlPlane) -> Filled:
    """Makes workspaces with the files; returns the session's id and the directory."""

    async def fill(level: str) -> tuple[str, Path]:
        box = await Box.create(control_plane, level, id=f"pack-{secrets.token_hex(4)}")
        for name, text in FILES.items():
            await box.mkdir(name.rpartition("/")[0] or "src")
            await box.write(name, text.encode(), permissions=0o755)
        await control_plane.sessions.close(TESTER, box.session, purge=False)
        return box.session.id, box.workspace

    return fill


@contextmanager
def flipping(workspace: Path, name: str, other: str) -> Iterator[None]:
    """Gives the name to the other file and back, all the time, by hard links and renames."""
    kept, new = workspace / ".kept", workspace / ".new"
    kept.hardlink_to(workspace / name)
    over = threading.Event()

    def flip() -> None:
        while not over.is_set():
            for source in (workspace / other, kept):
                new.hardlink_to(source)
                new.rename(workspace / name)
                new.unlink(missing_ok=True)  # a rename between links of one file does nothing

    thread = threading.Thread(target=flip)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


async def denials(box: Box) -> list[tuple[str, str]]:
    """The rule and the path of each denied read, repeats included."""
    return [
        (event["rule"], event["args"]["path"])
        for event in await box.events("read", decision="deny")
        for _ in range(event["args"].get("repeats", 1))
    ]


@pytest.mark.parametrize("level", ["low", "high"])
async def test_a_name_that_flips_from_before_the_session_on(
    control_plane: ControlPlane, filled: Filled, level: str
) -> None:
    name, workspace = await filled(level)
    read = refused = 0
    with flipping(workspace, "notes", "secret"):
        while not (read and refused):
            try:
                box = await Box.create(control_plane, level, id=name, consume=pack())
            except ConflictError:  # another file had the name at that moment
                continue
            refused = 0
            for _ in range(40):
                done = await box.run("cat notes")
                assert CANARY not in done.stdout + done.stderr
                assert done.stdout == ("" if done.exit_code else LISTED)
                read, refused = read + (done.exit_code == 0), refused + (done.exit_code != 0)
            told = await denials(box)
            assert len(told) == refused
            assert {rule for rule, _ in told} <= {CHANGED, UNLISTED}
            await control_plane.sessions.close(TESTER, box.session, purge=False)


def replaced(workspace: Path, name: str, other: str) -> None:
    (workspace / ".new").write_text((workspace / other).read_text())
    (workspace / ".new").chmod(0o755)
    (workspace / ".new").rename(workspace / name)


def linked(workspace: Path, name: str, other: str) -> None:
    (workspace / ".new").hardlink_to(workspace / other)
    (workspace / ".new").rename(workspace / name)


def pointed(workspace: Path, name: str, other: str) -> None:
    (workspace / ".new").symlink_to(other)
    (workspace / ".new").rename(workspace / name)


def rewritten(workspace: Path, name: str, other: str) -> None:
    with (workspace / name).open("r+") as file:
        file.write((workspace / other).read_text())


EXCHANGES = (
    ("notes", "secret", replaced),
    ("notes", "secret", linked),
    ("notes", "secret", pointed),
    ("notes", "secret", rewritten),
    ("src/notes", "secret", rewritten),
    ("src", "other", lambda workspace, name, other: swapped(workspace / name, workspace / other)),
)


def swapped(one: Path, other: Path) -> None:
    """Exchanges two directories."""
    between = one.with_name(".between")
    for source, target in ((one, between), (other, one), (between, other)):
        source.rename(target)


@pytest.mark.parametrize("level", ["low", "high"])
@pytest.mark.parametrize("mode", ["soft_fail", "warn"])
async def test_every_kind_of_exchange_is_denied_on_record(
    control_plane: ControlPlane, filled: Filled, level: str, mode: str
) -> None:
    for name, other, exchange in EXCHANGES:
        session_id, workspace = await filled(level)
        box = await Box.create(control_plane, level, id=session_id, consume=pack(mode))
        path = "src/notes" if name == "src" else name
        assert (await box.run(f"cat {path}")).stdout == LISTED
        assert await denials(box) == []
        exchange(workspace, name, other)
        case = (name, exchange.__name__)
        for command in (f"cat {path}", f"grep -r canary {path}", f"head -c 9 {path}"):
            done = await box.run(command)
            if exchange is not pointed or mode != "warn":  # a link to what warning lets be read
                assert "canary" not in done.stdout + done.stderr, (case, command)
                assert done.exit_code != 0, (case, command)
        if exchange is not pointed or mode != "warn":
            assert len(await denials(box)) == 3, case
        await box.close()


async def test_a_file_that_has_its_content_again_is_read_again(
    control_plane: ControlPlane, filled: Filled
) -> None:
    session_id, workspace = await filled("low")
    box = await Box.create(control_plane, "low", id=session_id, consume=pack())
    for text, expected in ((CANARY, ""), (LISTED, LISTED), (CANARY, ""), (LISTED, LISTED)):
        (workspace / "notes").write_text(text)
        assert (await box.run("cat notes")).stdout == expected
        with pytest.raises(PermissionDeniedError) if not expected else nullcontext():
            opened = await box.plane.files.read_packed(TESTER, box.session, "notes", None)
            assert b"".join([piece async for piece in opened.chunks()]).decode() == expected
    told = await denials(box)
    assert told == [(CHANGED, "/workspace/notes")] * 4
    await box.close()


async def test_an_exchange_ends_a_session_that_may_miss_nothing(
    control_plane: ControlPlane, filled: Filled
) -> None:
    session_id, workspace = await filled("low")
    box = await Box.create(control_plane, "low", id=session_id, consume=pack("hard_fail"))
    rewritten(workspace, "notes", "secret")
    assert CANARY not in (await box.run("cat notes")).stdout
    await until(lambda: box.session.termination is not None)
    ended = box.session.termination
    assert ended is not None
    assert ended.rationale_code is Rationale.CONTEXT_MISS
    await box.close()


@pytest.mark.parametrize("exchange", [replaced, linked, rewritten])
async def test_a_listed_program_is_not_executed_with_another_content(
    control_plane: ControlPlane, filled: Filled, exchange: Exchange
) -> None:
    session_id, workspace = await filled("high")
    box = await Box.create(control_plane, "high", id=session_id, consume=pack())
    for argv in (["./tool"], ["env", "./tool"]):
        assert LISTED in (await box.run(argv=argv)).stdout
    exchange(workspace, "tool", "other-tool")
    for argv in (["./tool"], ["env", "./tool"]):
        done = await box.run(argv=argv)
        assert CANARY not in done.stdout + done.stderr
        assert done.exit_code == 126, argv
    told = await denials(box)
    assert {path for _, path in told} == {"/workspace/tool"}
    assert len(told) >= 2 - (exchange is not rewritten)
    await box.close()
