"""What a session with a pack reads of its image: what programs need, and what the image lists."""

import io
import secrets
import shlex
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import closing

import docker
import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import PermissionDeniedError
from orchestrator.record.audit import query
from orchestrator.state.pack import Pack
from paddock.contract.pack_form import ToolClass
from paddock.contract.words import Rationale
from tests.support.box import TESTER, Box
from tests.support.plane import opened
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

CANARY = "canary-c1d7f2"
OTHERS = (
    *("/etc/app.conf", "/etc/app/settings", "/etc/debconf.conf.own", "/home/user/notes"),
    *("/opt/app/data", "/srv/site/page", "/var/lib/app/data", "/data", "/run-book"),
)
LISTED = "/srv/listed/file"
BASELINE = f'read = ["{LISTED.rpartition("/")[0]}"]\n'
# What agents do all the time, in a workspace without files.
HARMLESS = (
    *(
        ["ls", "-la"],
        ["id"],
        ["whoami"],
        ["bash", "-lc", "true"],
        ["date"],
        ["env"],
        ["uname", "-a"],
    ),
    ["python3", "-c", "import ssl, json, socket, getpass, mimetypes; print(getpass.getuser())"],
    [
        "python3",
        "-c",
        "import mimetypes, platform; mimetypes.init(); platform.freedesktop_os_release()",
    ],
    ["git", "--version"],
    ["git", "config", "--list"],
    ["curl", "--version"],
    ["session", "status"],
    ["sh", "-c", "echo x | sort | grep x | sed s/x/y/ | awk 1"],
    ["df"],
)


@pytest.fixture(scope="module")
def image(sandbox_image: str) -> Iterator[str]:
    """An image with files of its own, one of which its baseline lists."""
    files = dict.fromkeys(OTHERS, CANARY)
    files |= {LISTED: "listed\n", "/etc/paddock/baseline.toml": BASELINE}
    name = f"paddock-test-{secrets.token_hex(4)}:latest"
    with closing(docker.APIClient(version="auto")) as client:
        for line in client.build(
            fileobj=_context(f"FROM {sandbox_image}\nCOPY files /\n", files),
            custom_context=True,
            tag=name,
            rm=True,
            decode=True,
        ):
            assert "error" not in line, line
        yield name
        client.remove_image(name, force=True)


def _context(dockerfile: str, files: dict[str, str]) -> io.BytesIO:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path, text in {
            "/Dockerfile": dockerfile,
            **{f"/files{path}": text for path, text in files.items()},
        }.items():
            data = text.encode()
            member = tarfile.TarInfo(path[1:])
            member.size, member.mode = len(data), 0o644
            tar.addfile(member, io.BytesIO(data))
    packed.seek(0)
    return packed


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(image: str) -> AsyncIterator[ControlPlane]:
    async with opened(image=image) as plane:
        yield plane


async def packed(plane: ControlPlane, level: str, mode: str) -> Box:
    commands = ("*", *map(shlex.join, HARMLESS))
    given = Pack("fix", "sha256:" + "0" * 64, mode, tools=frozenset(ToolClass), commands=commands)
    return await Box.create(plane, level, consume=given)


async def missed(box: Box) -> list[str]:
    found = await query.events(box.plane.database, box.session.key, operation="read")
    assert all(event["decision"] == "deny" for event in found)
    return [event["args"]["path"] for event in found]


async def test_files_of_the_image_are_misses(plane: ControlPlane) -> None:
    box = await packed(plane, "high", "soft_fail")
    for path in OTHERS:
        done = await box.run(argv=["cat", path])
        assert CANARY not in done.stdout + done.stderr, path
        assert done.exit_code == 1, path
        with pytest.raises(PermissionDeniedError):
            await box.plane.files.read_packed(TESTER, box.session, path, None)
    assert set(OTHERS) <= set(await missed(box))
    assert (await box.run(argv=["cat", LISTED])).stdout == "listed\n"
    assert LISTED not in await missed(box)
    await box.close()


async def test_a_file_of_the_image_ends_the_session(plane: ControlPlane) -> None:
    box = await packed(plane, "high", "hard_fail")
    await box.run(argv=["cat", OTHERS[0]])
    await until(lambda: box.session.termination is not None)
    ended = box.session.termination
    assert ended is not None
    assert ended.rationale_code is Rationale.CONTEXT_MISS
    await box.close()


async def test_harmless_programs_miss_nothing(plane: ControlPlane) -> None:
    box = await packed(plane, "high", "soft_fail")
    for argv in HARMLESS:
        done = await box.run(argv=argv)
        assert done.exit_code == 0, (argv, done.stderr)
        assert await missed(box) == [], argv
    await box.close()
