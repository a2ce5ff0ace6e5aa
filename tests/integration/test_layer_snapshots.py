"""Snapshots with the writable layer of root inside: kept whole, given to others, never trusted."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import ConflictError, ValidationError
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.host.workspace import root_layer
from paddock import Paddock
from tests.support.box import TESTER, Box
from tests.support.cli import run_beside
from tests.support.leaks import left_behind
from tests.support.plane import opened
from tests.support.root_levels import write_root_level
from tests.support.server import leaving_nothing

LAYERED, LARGER, SMALLER = "layered", "larger", "smaller"
MIB = 1024 * 1024
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(
    sandbox_image: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ControlPlane]:
    directory = tmp_path_factory.mktemp("levels")
    for rank, (name, size) in enumerate(((SMALLER, 64), (LAYERED, 128), (LARGER, 192)), 400):
        write_root_level(directory, f"root_bytes = {size * MIB}", name=name, rank=rank)
    async with opened(image=sandbox_image, levels_dir=directory) as plane:
        yield plane


async def said(box: Box, line: str) -> str:
    """What a shell line prints that succeeds."""
    done = await box.bash(line)
    assert done.exit_code == 0, (line, done.stdout, done.stderr)
    return done.stdout


async def said_again(box: Box, line: str) -> str:
    """What a shell line prints in the session's next sandbox."""
    assert await box.plane.sessions.suspensions.suspend(box.session, "room")
    async with box.plane.sessions.suspensions.using(TESTER, box.session):
        return await said(box, line)


PACKAGE = """
set -e
mkdir -p tree/DEBIAN tree/usr/bin
printf 'Package: tiny\\nVersion: 1\\nArchitecture: all\\nMaintainer: nobody <n@example.com>\\n' \
    > tree/DEBIAN/control
printf 'Description: a program and a user of its own\\n' >> tree/DEBIAN/control
printf '#!/bin/sh\\nset -e\\nadduser --system --no-create-home tiny\\n' > tree/DEBIAN/postinst
chmod 755 tree/DEBIAN/postinst
printf '#!/bin/sh\\necho installed\\n' > tree/usr/bin/tiny-program
chmod 755 tree/usr/bin/tiny-program
dpkg-deb --build tree tiny.deb
dpkg -i tiny.deb
rm -r tree tiny.deb
"""
# A file and a directory of the image that go, one that becomes another, and one that moves.
CHANGES = """
set -e
rm /etc/debian_version
rm -r /usr/share/zoneinfo
rm -r /etc/skel; mkdir /etc/skel; echo mine > /etc/skel/mine
mv /usr/share/perl5 /usr/share/moved
echo mine > /var/local/mine  # of the group staff, which nobody is here
"""
LOOK = """
tiny-program; dpkg-query -W tiny; id -un tiny
ls /etc/debian_version /usr/share/zoneinfo /usr/share/perl5 2>/dev/null
ls -A /etc/skel; find /usr/share/moved -type f | grep -q . && echo moved
stat -c '%u:%g' /usr/bin/tiny-program /usr/share/moved /usr/bin/bash
"""
SEEN = "installed\ntiny\t1\ntiny\nmine\nmoved\n0:0\n0:0\n0:0\n"


async def test_what_was_installed_is_kept(plane: ControlPlane) -> None:
    """Also what was removed; each session writes over its own copy, and has it again later."""
    before = left_behind(plane.settings.state_dir)
    source = await Box.create(plane, LAYERED)
    await said(source, PACKAGE)
    await said(source, CHANGES)
    assert (await source.bash(LOOK)).stdout == SEEN
    taking = plane.named_snapshots.take(TESTER, source.session, "installed", layer=True)
    taken = (await taking).snapshot
    assert taken.layer_bytes is not None
    assert 0 < taken.layer_bytes < taken.bytes
    await said(source, "rm /usr/bin/tiny-program; echo later > /usr/later")
    box = await Box.create(plane, LAYERED, from_snapshot="installed")
    assert box.uid != source.uid
    assert (await box.bash(LOOK)).stdout == SEEN
    assert await said(box, "echo more > /var/local/more; cat /var/local/*") == "mine\nmore\n"
    await said(box, "echo over > /usr/bin/tiny-program; echo own > /usr/own")
    assert "own" not in await said(source, "ls /usr")
    await plane.named_snapshots.remove(TESTER, "tester", "installed")
    await source.close()
    assert os.listdir(plane.settings.snapshots_path) == []
    assert await said_again(box, f"{LOOK}test -e /usr/own || echo gone") == f"{SEEN}gone\n"
    await box.close()
    assert left_behind(plane.settings.state_dir) == before


async def test_a_snapshot_of_a_copy_has_all_of_it(plane: ControlPlane) -> None:
    """The copy keeps the first session's uid on the disk, and is shown as each later one's."""
    boxes = [await Box.create(plane, LAYERED)]
    for number in range(3):
        await said(boxes[-1], f"mkdir /opt/d{number}; echo {number} > /opt/d{number}/f")
        name = f"chain-{number}"
        await plane.named_snapshots.take(TESTER, boxes[-1].session, name, layer=True)
        boxes.append(await Box.create(plane, LARGER, from_snapshot=name))
    found = await said(boxes[-1], "cat /opt/d?/f; stat -c %u:%g /opt/d?/f; df -m /opt | tail -n1")
    assert found.startswith("0\n1\n2\n0:0\n0:0\n0:0\n")
    assert int(found.splitlines()[-1].split()[1]) > 128
    for box in boxes:
        await box.close()
    for number in range(3):
        await plane.named_snapshots.remove(TESTER, "tester", f"chain-{number}")


async def test_without_a_sandbox_it_is_what_the_next_one_begins_with(plane: ControlPlane) -> None:
    source = await Box.create(plane, LAYERED)
    await said(source, "echo first > /opt/first")
    await plane.named_snapshots.take(TESTER, source.session, "first", layer=True)
    box = await Box.create(plane, LAYERED, from_snapshot="first")
    for each in (source, box):
        assert await plane.sessions.suspensions.suspend(each.session, "room")
    taken = await plane.named_snapshots.take(TESTER, box.session, "second", layer=True)
    none = await plane.named_snapshots.take(TESTER, source.session, "none", layer=True)
    assert (taken.snapshot.layer_bytes or 0) > 0
    assert none.snapshot.layer_bytes is None
    again = await Box.create(plane, LAYERED, from_snapshot="second")
    assert await said(again, "cat /opt/first") == "first\n"
    for each in (source, box, again):
        await each.close()
    for name in ("first", "second", "none"):
        await plane.named_snapshots.remove(TESTER, "tester", name)


async def test_forks_have_it(plane: ControlPlane) -> None:
    source = await Box.create(plane, LAYERED)
    await said(source, "echo one > /opt/state")
    forked = await plane.forks.fork(TESTER, source.session, 2)
    for registered in forked.made:
        fork = Box(plane, registered.session)
        assert await said(fork, "cat /opt/state; echo own > /opt/state") == "one\n"
        await fork.close()
    assert await said(source, "cat /opt/state") == "one\n"
    await source.close()


async def test_where_it_is_not_had(plane: ControlPlane) -> None:
    """Another level or another image is refused before anything is made."""
    plain = await Box.create(plane, "high")
    with pytest.raises(ConflictError, match="level high has no writable layer") as caught:
        await plane.named_snapshots.take(TESTER, plain.session, "x", layer=True)
    assert caught.value.fields["field"] == "layer"
    await plain.close()
    source = await Box.create(plane, LAYERED)
    await said(source, "head -c 80M /dev/urandom > /opt/large; echo x > file")
    await plane.named_snapshots.take(TESTER, source.session, "large", layer=True)
    await plane.named_snapshots.take(TESTER, source.session, "files")
    before = left_behind(plane.settings.state_dir)
    with pytest.raises(ValidationError, match="with root_bytes") as wrong:
        await Box.create(plane, "high", from_snapshot="large")
    assert wrong.value.fields["field"] == "permission_level"
    with pytest.raises(ConflictError, match=f"root_bytes are {64 * MIB}"):
        await Box.create(plane, SMALLER, from_snapshot="large")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(root_layer, "_MOST_NAME", 8)
        with pytest.raises(ConflictError, match="written over image"):
            await Box.create(plane, LAYERED, from_snapshot="large")
    assert left_behind(plane.settings.state_dir) == before
    box = await Box.create(plane, "high", from_snapshot="files")
    assert await said(box, "cat file; ls /opt") == "x\npaddock\n"
    await box.close()
    await source.close()
    for name in ("large", "files"):
        await plane.named_snapshots.remove(TESTER, "tester", name)


async def test_its_bytes_count_and_are_of_the_snapshot(plane: ControlPlane) -> None:
    source = await Box.create(plane, LAYERED)
    await said(source, "head -c 20M /dev/urandom > /opt/large")
    taking = plane.named_snapshots.take(TESTER, source.session, "counted", layer=True)
    taken = (await taking).snapshot
    assert taken.layer_bytes is not None
    assert taken.layer_bytes > 20 * MIB
    ended = await source.event("snapshot.end")
    assert ended["result"]["layer_bytes"] == taken.layer_bytes
    directory = plane.settings.snapshots_path
    kept = sorted(os.listdir(directory))
    assert kept == [f"{taken.id}.img", f"{taken.id}.layer.img"]
    assert sum((directory / each).stat().st_blocks * 512 for each in kept) == taken.bytes
    (directory / f"{taken.id}.layer.img").unlink()
    await plane.named_snapshots.recover()
    assert os.listdir(directory) == []
    await source.close()


# Writes over the image all the time.
WRITER = (
    "import os\nfile = os.open('/opt/file', os.O_WRONLY | os.O_CREAT)\nprint('up', flush=True)\n"
    "while True: os.pwrite(file, os.urandom(4096), 0); os.fsync(file)"
)
POINTS = [
    FaultPoint.SNAPSHOT_FROZEN,
    FaultPoint.SNAPSHOT_COPIED,
    FaultPoint.SNAPSHOT_ENDED,
    FaultPoint.SNAPSHOT_PLACED,
]


@pytest.mark.parametrize("point", POINTS)
async def test_a_kill_leaves_nothing_frozen_and_no_half(
    tmp_path: Path, sandbox_image: str, point: FaultPoint
) -> None:
    levels, order = tmp_path / "levels", tmp_path / "dies-at"
    levels.mkdir()
    write_root_level(levels, f"root_bytes = {64 * MIB}", name=LAYERED)
    members = {"PADDOCK_IMAGE": sandbox_image, "PADDOCK_LEVELS_DIR": str(levels)}
    async with leaving_nothing(**members, DIES_AT=str(order)) as server:
        await server.kill()
        server.module = "tests.chaos.dying"
        await server.start()
        made = {"id": "source", "permission_level": LAYERED}
        path = "/api/sessions/source"
        await server.ok("POST", "/api/sessions", made)
        writer = {"argv": ["python3", "-c", WRITER], "background": True}
        await server.ok("POST", f"{path}/exec", writer)
        await server.ok("POST", f"{path}/exec", {"shell": "until test -s /opt/file; do :; done"})
        order.write_text(f"{point} 1")
        body = {"name": "kept", "layer": True}
        begun = {"id": "other", "permission_level": LAYERED, "from_snapshot": "kept"}
        taken = FaultPoint.SNAPSHOT_PLACED is point
        if taken:
            await server.ok("POST", f"{path}/snapshots", body)
        last = ("/api/sessions", begun) if taken else (f"{path}/snapshots", body)
        with pytest.raises(aiohttp.ClientError):
            await server.ok("POST", *last)
        await server.kill()
        await server.start()
        kept = (await server.ok("GET", "/api/snapshots"))["items"]
        whole = point in (FaultPoint.SNAPSHOT_ENDED, FaultPoint.SNAPSHOT_PLACED)
        assert len(kept) == (1 if whole else 0)
        names = [f"{each['id']}{kind}" for each in kept for kind in (".img", ".layer.img")]
        assert sorted(os.listdir(server.state_dir / "snapshots")) == names
        done = await server.ok("POST", f"{path}/exec", {"shell": "touch /opt/new && ls /opt/new"})
        assert done["stdout"] == "/opt/new\n"
        if whole:
            await server.ok("POST", "/api/sessions", begun)
            read = {"shell": "test -s /opt/file && ls /opt"}
            done = await server.ok("POST", "/api/sessions/other/exec", read)
            assert done["stdout"] == "file\npaddock\n"
            await server.ok("DELETE", "/api/sessions/other?purge=true")
            await server.ok("DELETE", "/api/snapshots/kept")
        assert os.listdir(server.state_dir / "snapshots") == []
        await server.ok("DELETE", f"{path}?purge=true")


async def test_the_client_and_the_command_line_keep_it(
    sandbox_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_root_level(tmp_path, f"root_bytes = {64 * MIB}", name=LAYERED)
    members = {"PADDOCK_IMAGE": sandbox_image, "PADDOCK_LEVELS_DIR": str(tmp_path)}
    async with (
        leaving_nothing(**members) as server,
        Paddock(server.url, server.key) as paddock,
    ):
        session = await paddock.sessions.create(permission_level=LAYERED)
        await session.exec(argv=["touch", "/opt/kept"])
        taken = await session.snapshots.create("one", layer=True)
        assert (taken.layer_bytes or 0) > 0
        words = ["snapshots", "create", session.id, "two", "--layer", "--json"]
        monkeypatch.setenv("PADDOCK_URL", server.url)
        monkeypatch.setenv("PADDOCK_KEY", server.key)
        done = await run_beside(*words)
        assert (done.status, json.loads(done.out)["layer_bytes"] > 0) == (0, True), done.err
        again = await paddock.sessions.create(permission_level=LAYERED, from_snapshot="two")
        assert (await again.exec(argv=["ls", "/opt/kept"])).stdout == "/opt/kept\n"
        for each in (session, again):
            await each.close(purge=True)
        for name in ("one", "two"):
            await paddock.snapshots.remove(name)
