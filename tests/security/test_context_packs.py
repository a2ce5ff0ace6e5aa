"""Sessions with context packs: bytes outside the pack reach nobody, and a miss ends the session.

A workspace is filled by an ordinary session, which is closed. A session with a pack then gets the
same workspace.
"""

import asyncio
import contextlib
import hashlib
import secrets
import shlex
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import (
    ConflictError,
    PaddockError,
    PermissionDeniedError,
    SessionTerminatedError,
)
from orchestrator.record.audit import query
from orchestrator.state.pack import Pack, PackFile
from paddock.contract.pack_form import ToolClass
from paddock.contract.words import Rationale
from sandbox_agent.decide.protocol import Message
from tests.support.box import PATIENCE, TESTER, Box
from tests.support.leaks import NOTHING, left_behind
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

CANARY = "canary-7b1f9c2e"
FILES = {"src/main.py": "print('listed')\n", "src/secret.py": CANARY, "README.md": "read me\n"}
ALL = frozenset(ToolClass)
ATTACK = (
    "import os,sys\n"
    "seen=[]\n"
    "for p in ['/workspace/src/secret.py','/proc/self/root/workspace/src/secret.py',\n"
    "          '/proc/self/cwd/src/secret.py']:\n"
    "    try: seen.append(open(p).read())\n"
    "    except OSError: pass\n"
    "d=os.open('/workspace/src/secret.py',os.O_PATH)\n"
    "try: seen.append(open(f'/proc/self/fd/{d}').read())\n"
    "except OSError: pass\n"
    "try: os.link('/workspace/src/secret.py','/workspace/out/link')\n"
    "except OSError: pass\n"
    "try: os.rename('/workspace/src/secret.py','/workspace/src/main.py')\n"
    "except OSError: pass\n"
    "print(open('/workspace/src/main.py').read()); print(seen)\n"
)
IMPORTS = "import json, ssl; print('up')"
TRUNCATES = (
    "import os\n"
    "def cut(path, access):\n"
    "    try: os.close(os.open(path, access | os.O_TRUNC))\n"
    "    except OSError as error: print(path, error.strerror)\n"
    "for path in ['/workspace/src/secret.py', '/workspace/src/main.py']:\n"
    "    for access in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_ACCMODE): cut(path, access)\n"
    "    try: os.truncate(path, 0)\n"
    "    except OSError as error: print(path, error.strerror)\n"
    "open('/workspace/out/own', 'w').write('own')\n"
    "os.close(os.open('/workspace/out/own', os.O_WRONLY | os.O_TRUNC))\n"
)
# A star stands for no shell operator.
PYTHON = (ATTACK, IMPORTS, TRUNCATES)
COMMANDS = ("*", *(shlex.join(["python3", "-c", source]) for source in PYTHON))
Packed = Callable[..., Awaitable[Box]]


def content_hash(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def pack(files: Mapping[str, str | None], **members: Any) -> Pack:
    """A pack of these files, by path with their content; None: any content."""
    listed = {
        f"/workspace/{path}": PackFile(
            f"/workspace/{path}", None if text is None else content_hash(text)
        )
        for path, text in files.items()
    }
    return Pack("fix", "sha256:" + "0" * 64, files=listed, **{"tools": ALL, **members})


LISTED = {path: FILES[path] for path in ("src/main.py", "README.md")}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def packed(control_plane: ControlPlane) -> Packed:
    """Opens sessions with a pack, in workspaces with the files."""

    async def create(level: str, given: Pack, *more: Message, **members: Any) -> Box:
        name = members.pop("id", f"pack-{secrets.token_hex(4)}")
        box = await Box.create(control_plane, level, id=name)
        await box.mkdir("src")
        for path, text in FILES.items():
            await box.write(path, text.encode())
        for operation in more:
            await box.session.check_open().link.request(operation["method"], operation["params"])
        await control_plane.sessions.close(TESTER, box.session, purge=False)
        return await Box.create(control_plane, level, id=name, consume=given, **members)

    return create


async def operations(box: Box) -> list[str]:
    found = await query.events(box.plane.database, box.session.key)
    return [event["operation"] for event in found]


async def read(box: Box, path: str, stated: str | None = None) -> bytes:
    opened = await box.plane.files.read_packed(TESTER, box.session, path, stated)
    return b"".join([chunk async for chunk in opened.chunks()])


@pytest.mark.parametrize("level", ["low", "high"])
async def test_commands_read_the_files_of_the_pack_only(packed: Packed, level: str) -> None:
    box = await packed(
        level, pack(LISTED, mode="soft_fail", commands=COMMANDS, writes=("/workspace/out",))
    )
    assert box.session.level.network == "none"
    assert (await box.run("cat README.md")).stdout == "read me\n"
    assert "listed" in (await box.run("cat src/main.py")).stdout
    for argv in (
        ["cat", "src/secret.py"],
        ["cat", "src/../src//secret.py"],
        ["grep", "-r", "canary", "."],
        ["cp", "src/secret.py", "out/copy"],
        ["head", "-c", "5", "src/secret.py"],
        ["mv", "src/secret.py", "out/moved"],
    ):
        ended = await box.run(argv=argv)
        assert ended.exit_code != 0, argv
        assert CANARY not in ended.stdout + ended.stderr, argv
    assert (await box.run("touch out/new")).exit_code == 0
    assert (await box.run("touch src/new")).exit_code != 0
    assert (await box.run("touch src/main.py.new")).exit_code != 0
    if level == "high":
        ended = await box.python(ATTACK)
        assert CANARY not in ended.stdout, ended.stdout
        assert "listed" in ended.stdout, ended.stderr
        assert ended.stdout.rstrip().endswith("[]")
        compiled = await box.python(IMPORTS)
        assert compiled.stdout == "up\n", compiled.stderr
    assert box.session.live
    await box.close()


async def test_no_file_that_may_not_be_written_is_truncated(packed: Packed) -> None:
    box = await packed(
        "high", pack(LISTED, mode="soft_fail", commands=COMMANDS, writes=("/workspace/out",))
    )
    ended = await box.python(TRUNCATES)
    secret, listed = (f"/workspace/src/{name}.py Permission denied" for name in ("secret", "main"))
    assert ended.stdout.splitlines() == [secret] * 5 + [listed] * 5, ended.stderr
    for path, text in FILES.items():
        assert (box.workspace / path).read_text() == text
    assert (box.workspace / "out/own").read_bytes() == b""
    # Those that would have read, too.
    told = [event["args"] for event in await box.events("read", decision="deny")]
    secrets_told = [args for args in told if args["path"] == "/workspace/src/secret.py"]
    assert sum(args.get("repeats", 1) for args in secrets_told) >= 2
    await box.close()


async def test_a_mismatch_opens_nothing(packed: Packed, control_plane: ControlPlane) -> None:
    name = f"pack-{secrets.token_hex(4)}"
    files = {**LISTED, "README.md": "other\n", "missing": None}
    with pytest.raises(ConflictError) as refused:
        await packed("low", pack(files), id=name)
    assert refused.value.fields["paths"] == ["/workspace/README.md", "/workspace/missing"]
    assert control_plane.sessions.finder.existing(TESTER, name) is None
    box = await Box.create(control_plane, "low", id=name)  # the id and the workspace are free
    assert (await box.run("cat README.md")).stdout == "read me\n"
    await box.close()


async def test_reads_are_verified_and_a_miss_ends_the_session(packed: Packed) -> None:
    box = await packed("low", pack(LISTED, commands=("ls *",), writes=("/workspace/out",)))
    assert await read(box, "src/../README.md") == b"read me\n"
    assert await read(box, "/workspace//README.md", content_hash("read me\n")) == b"read me\n"
    listing = await box.plane.files.list(TESTER, box.session, ".", 3)
    shown = {entry.path for entry in listing.entries}
    assert shown == {"src", "src/main.py", "README.md", "out"}
    # Refused without an end: a malformed path, a write, a command, an archive, a port.
    for refused in (
        read(box, "../../x"),
        box.write("src/main.py", b"changed"),
        box.write("out/../src/main.py", b"changed"),
        box.run(argv=["cat", "README.md"]),
        box.run(argv=["ls", ";", "src"]),
        box.run(argv=["ls", "src"], output_file="src/main.py"),
        box.run(argv=["ls", "src"], output_file="out/../src/main.py"),
        box.plane.file_archives.pack(TESTER, box.session, ".", "tar"),
        box.plane.ports.open(TESTER, box.session, 8000, 60),
    ):
        with pytest.raises(PaddockError):
            await refused
        assert box.session.live
    await box.write("out/report", b"done")
    assert (await box.run(argv=["ls", "src"], output_file="out/names")).exit_code == 0
    assert (box.workspace / "out/names").read_bytes() == b"main.py\nsecret.py\n"
    with pytest.raises(PermissionDeniedError) as missed:
        await read(box, "src/secret.py")
    assert missed.value.fields["rule"] == "CTX-ALLOWLIST-001"
    assert CANARY not in missed.value.detail
    assert not box.session.live
    assert box.session.termination is not None
    assert box.session.termination.rationale_code is Rationale.CONTEXT_MISS
    assert box.session.termination.exit_classification == "FAILURE"
    with pytest.raises(SessionTerminatedError):
        await read(box, "README.md")
    assert (await operations(box))[-3:] == [
        "read",
        "session.terminated",
        "coordination.context_refinement_request",
    ]


@pytest.mark.parametrize("level", ["low", "high"])
async def test_a_program_that_misses_ends_the_session(packed: Packed, level: str) -> None:
    box = await packed(level, pack(LISTED, commands=("*",)))
    assert (await box.run("cat README.md")).stdout == "read me\n"  # what it needs is no miss
    await box.start("cat src/secret.py")
    async with asyncio.timeout(PATIENCE):
        await box.session.over
    assert box.session.termination is not None
    assert box.session.termination.rationale_code is Rationale.CONTEXT_MISS
    told = await query.events(box.plane.database, box.session.key)
    (miss,) = (event for event in told if event["operation"] == "read")
    assert (miss["decision"], miss["source"]) == ("deny", "agent")
    assert miss["args"]["path"] == "/workspace/src/secret.py"
    assert miss["args"]["manifest_id"] == "fix"
    names = [event["operation"] for event in told]
    assert names.index("read") < names.index("session.terminated")
    assert "coordination.context_refinement_request" in names
    assert CANARY not in str(told)


async def test_content_that_changed_is_denied_in_every_mode(packed: Packed) -> None:
    for mode in ("warn", "soft_fail", "hard_fail"):
        box = await packed("low", pack(LISTED, mode=mode, writes=("/workspace/src",)))
        await box.write("src/main.py", CANARY.encode())
        with pytest.raises(PermissionDeniedError) as refused:
            await read(box, "src/main.py")
        assert refused.value.fields["rule"] == "CTX-TOCTOU-001"
        assert box.session.live is (mode != "hard_fail")
        if mode == "warn":
            assert await read(box, "src/secret.py") == CANARY.encode()
        if box.session.live:
            await box.close()


async def test_links_lead_to_nothing_outside(packed: Packed) -> None:
    links = [
        {"method": "file.symlink", "params": {"path": path, "target": target}}
        for path, target in (("src/alias", "secret.py"), ("out", "src"))
    ]
    given = pack({**LISTED}, mode="soft_fail", commands=("*",), writes=("/workspace/out",))
    box = await packed("low", given, *links)
    assert (await box.run("cat src/alias")).exit_code != 0
    with pytest.raises(PaddockError):
        await box.write("out/secret.py", b"changed")
    with pytest.raises(PermissionDeniedError):
        await read(box, "src/alias")
    await box.close()
    with pytest.raises(ConflictError):
        await packed("low", pack({"src/alias": CANARY}), *links)


MISSES = {
    "low": ["cat", "src/secret.py"],
    "high": ["python3", "src/secret.py"],
}


@pytest.mark.parametrize("level", sorted(MISSES))
async def test_a_program_that_misses_something_ends_the_session(packed: Packed, level: str) -> None:
    box = await packed(level, pack(LISTED, commands=("*",)))
    for argv in (["cat", "README.md"], ["grep", "-rn", "listed", "src/main.py"], ["ls", "-l"]):
        assert (await box.run(argv=argv)).exit_code == 0, argv
    if level == "high":
        for argv in (["-c", "import json, ssl, subprocess, tempfile"], ["src/main.py"]):
            assert (await box.run(argv=["python3", *argv])).exit_code == 0, argv
    assert box.session.live
    with contextlib.suppress(SessionTerminatedError):
        missed = await box.run(argv=MISSES[level])
        assert CANARY not in missed.stdout + missed.stderr
    await box.event("coordination.context_refinement_request")
    await until(lambda: left_behind(box.plane.settings.state_dir) == NOTHING)
    assert box.session.termination is not None
    assert box.session.termination.rationale_code is Rationale.CONTEXT_MISS
    event, *_ = await box.events("read")
    assert event["decision"] == "deny"
    assert event["args"]["path"] == "/workspace/src/secret.py"
    assert event["args"]["manifest_id"] == "fix"
    assert event["args"]["syscall"] == "openat"
    after = await operations(box)
    assert after.index("session.terminated") < after.index(
        "coordination.context_refinement_request"
    )
