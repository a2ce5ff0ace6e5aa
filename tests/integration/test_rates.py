"""Disk and network speed of sandboxes with rate limits, measured inside.

A rate sets the least time that a transfer takes, however busy the machine is. So the tests only
check that transfers are slow enough, and set no upper limits.
"""

import secrets
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.host.engine.docker import DockerEngine
from orchestrator.host.node.requirements import UnmetError
from orchestrator.host.node.throttle import device_of, held, root_group
from orchestrator.state.requests import NewSession
from tests.support.box import TESTER, Box
from tests.support.leaks import NOTHING, left_behind
from tests.support.limits import PROGRAM_SECONDS
from tests.support.plane import opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

PACKAGED = Path(__file__).parents[2] / "orchestrator" / "rules" / "policy" / "levels"
MIB = 2**20
DISK_RATE = 4 * MIB
NETWORK_RATE = 500_000
RATES = f"""
[rates]
disk_read = {DISK_RATE}
disk_write = {DISK_RATE}
network_receive = {NETWORK_RATE}
network_send = {NETWORK_RATE}
"""
# The share of the expected time that must pass: a rate allows a burst at the start.
SLACK = 0.7

# Prints the seconds for writing or reading `size` bytes of a file in the named way.
MOVE = """
import ctypes, json, mmap, os, sys, time
how, size = sys.argv[1], int(sys.argv[2])
block = mmap.mmap(-1, 1 << 20)
block[:] = os.urandom(1 << 20)
def write(flags):
    fd = os.open(how, os.O_WRONLY | os.O_CREAT | flags)
    for _ in range(size >> 20):
        os.write(fd, block)
    return fd
def forget():
    fd = os.open("source", os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    return fd
def direct():
    write(os.O_DIRECT)
def synced():
    write(os.O_SYNC)
def buffered():
    os.fsync(write(0))
def flushed():
    # The kernel's own threads write it back, not this process.
    assert ctypes.CDLL(None, use_errno=True).syncfs(write(0)) == 0
def mapped():
    fd = os.open(how, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, size)
    with mmap.mmap(fd, size) as map:
        for at in range(0, size, 1 << 20):
            map[at : at + (1 << 20)] = block[:]
        map.flush()
def read():
    fd = forget()
    while os.read(fd, 1 << 20):
        pass
def read_direct():
    fd = os.open("source", os.O_RDONLY | os.O_DIRECT)
    while os.readv(fd, [block]):
        pass
began = time.monotonic()
globals()[how]()
print(json.dumps(time.monotonic() - began))
"""
# Sends data to the address, then receives as much; prints the seconds of both.
TALK = """
import json, socket, sys, time
size = int(sys.argv[2])
with socket.create_connection((sys.argv[1], 53)) as peer:
    began = time.monotonic()
    peer.sendall(bytes(size))
    assert peer.recv(1) == b"k"
    sent = time.monotonic()
    left = size
    while left:
        left -= len(peer.recv(65536))
    print(json.dumps([sent - began, time.monotonic() - sent]))
"""


def serve(server: socket.socket, size: int) -> None:
    """Receives `size` bytes on each connection, confirms them, and sends as many."""
    with suppress(OSError):
        while True:
            peer, _ = server.accept()
            with peer, suppress(OSError):
                left = size
                while left and (data := peer.recv(65536)):
                    left -= len(data)
                peer.sendall(b"k" + bytes(size))


@contextmanager
def machine(size: int) -> Iterator[str]:
    """An address of the host whose port 53 is open to sandboxes that use it as a name server."""
    address = f"198.19.{secrets.randbelow(250)}.{1 + secrets.randbelow(250)}"
    change = ["ip", "address", "add", f"{address}/32", "dev", "lo"]
    subprocess.run(change, check=True, timeout=PROGRAM_SECONDS)
    try:
        server = socket.create_server((address, 53))
        thread = threading.Thread(target=serve, args=(server, size))
        thread.start()
        try:
            yield address
        finally:
            server.shutdown(socket.SHUT_RDWR)
            server.close()
            thread.join()
    finally:
        change[2] = "del"
        subprocess.run(change, check=True, timeout=PROGRAM_SECONDS)


SENT = 3 * NETWORK_RATE


@pytest.fixture(scope="module")
def peer() -> Iterator[str]:
    with machine(SENT) as address:
        yield address


@pytest.fixture(scope="module")
def levels_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("levels")
    text = (PACKAGED / "high.toml").read_text().replace("rank = 300", "rank = 310")
    (directory / "slow.toml").write_text(text + RATES)
    low = (PACKAGED / "low.toml").read_text().replace("rank = 100", "rank = 110")
    (directory / "slow-disk.toml").write_text(f"{low}\n[rates]\ndisk_write = {DISK_RATE}\n")
    return directory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(sandbox_image: str, levels_dir: Path, peer: str) -> AsyncIterator[ControlPlane]:
    async with opened(image=sandbox_image, levels_dir=levels_dir, resolvers=(peer,)) as plane:
        yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def slow(plane: ControlPlane) -> Box:
    box = await Box.create(plane, "slow")
    await box.write("source", *[secrets.token_bytes(MIB)] * 12)
    # Once written back, the file can be dropped from the page cache.
    assert (await box.run(argv=["sync", "source"])).exit_code == 0
    return box


async def seconds(box: Box, how: str, size: int) -> float:
    found: float = (await box.python(MOVE, how, str(size))).value
    return found


@pytest.mark.parametrize("how", ["direct", "synced", "buffered", "flushed", "mapped"])
async def test_writes_take_their_time(slow: Box, how: str) -> None:
    size = 12 * MIB
    assert await seconds(slow, how, size) >= SLACK * size / DISK_RATE


@pytest.mark.parametrize("how", ["read", "read_direct"])
async def test_reads_take_their_time(slow: Box, how: str) -> None:
    assert await seconds(slow, how, 0) >= SLACK * 12 * MIB / DISK_RATE


async def test_ways_of_writing_share_one_rate(slow: Box) -> None:
    """The kernel's write-back and the session's own writes share the rate."""
    script = (
        'start=$(date +%s%N); python3 -c "$0" direct "$1" >/dev/null & '
        'python3 -c "$0" flushed "$1" >/dev/null & wait; echo $(($(date +%s%N) - start))'
    )
    size = 8 * MIB
    done = await slow.run(argv=["bash", "-c", script, MOVE, str(size)])
    assert done.exit_code == 0, done.stderr
    assert int(done.stdout) / 1e9 >= SLACK * 2 * size / DISK_RATE


async def test_the_network_takes_its_time_both_ways(slow: Box, peer: str) -> None:
    sent, received = (await slow.python(TALK, peer, str(SENT))).value
    assert sent >= SLACK * SENT / NETWORK_RATE
    assert received >= SLACK * SENT / NETWORK_RATE


def buckets(box: Box) -> str:
    """The queues at the sandbox's end of its link."""
    command = ["nsenter", "-t", str(box.agent().pid), "-n", "tc", "qdisc", "show", "dev", "eth0"]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=PROGRAM_SECONDS
    ).stdout


async def test_without_rates_nothing_is_set(plane: ControlPlane, slow: Box, peer: str) -> None:
    box = await Box.create(plane, "high")
    assert "tbf" in buckets(slow)
    assert "tbf" not in buckets(box)
    assert held(device_of(slow.workspace))
    assert not held(device_of(box.workspace))
    groups = Path(f"/proc/{box.agent().pid}/cgroup").read_text()
    # With cgroups v1, all processes of a sandbox without rates are in the container's own group.
    (own, *_) = [line for line in groups.splitlines() if root_group() is None or "blkio" in line]
    assert root_group() is None or box.container_id in own
    assert len((await box.python(TALK, peer, str(SENT))).value) == 2
    await box.close()


async def test_a_level_change_sets_them_and_takes_them(plane: ControlPlane) -> None:
    box = await Box.create(plane, "low")
    device = device_of(box.workspace)
    assert not held(device)
    for level, expected in (("slow-disk", True), ("low", False), ("slow", True), ("high", False)):
        await plane.sessions.changes.set_level(TESTER, box.session, level, {})
        assert held(device_of(box.workspace)) is expected
    size = 16 * MIB
    await plane.sessions.changes.set_level(TESTER, box.session, "slow", {})
    assert await seconds(box, "flushed", size) >= SLACK * size / DISK_RATE
    device = device_of(box.workspace)
    await box.close()
    assert not held(device)


async def test_what_is_not_written_yet_holds_up_no_end(plane: ControlPlane) -> None:
    """At the session's rate, the writes would take longer than a container's removal may take."""
    script = (
        "import os; fd = os.open('x', os.O_WRONLY | os.O_CREAT)\n"
        "for _ in range(200): os.write(fd, os.urandom(1 << 20))\n"
        "print('written', flush=True); os.fsync(fd)"
    )
    box = await Box.create(plane, "slow", id="dirty")
    command = await box.start(argv=["python3", "-c", script])
    await box.printed(command, "written")
    device = device_of(box.workspace)
    before = left_behind(plane.settings.state_dir)["directories"]
    await box.close()
    assert not held(device)
    assert len(left_behind(plane.settings.state_dir)["directories"]) == len(before) - 1


async def test_a_rate_that_a_killed_control_plane_left_is_taken(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await Box.create(plane, "slow-disk", id="left")
    with monkeypatch.context() as patch:

        async def nothing(*_: object) -> None:
            return None

        patch.setattr("orchestrator.sandbox.sandboxes.restrictions.Restrictions.end", nothing)
        await plane.sessions.close(TESTER, first.session, purge=False)
    second = await Box.create(plane, "low", id="left")
    assert not held(device_of(second.workspace))
    await second.close()


async def test_where_a_rate_can_not_be_kept_the_level_is_refused(
    sandbox_image: str, levels_dir: Path
) -> None:
    settings = {"image": sandbox_image, "levels_dir": levels_dir, "workspace_quota": "none"}
    async with opened(**settings) as plane:
        for level in ("slow", "slow-disk"):
            with pytest.raises(UnmetError, match="needs a rate limit for workspaces' disks"):
                await plane.sessions.create(TESTER, NewSession(permission_level=level))
        assert left_behind(plane.settings.state_dir) == NOTHING


@pytest.mark.parametrize("step", ["hold_device", "hold_link"])
async def test_a_sandbox_whose_rates_can_not_be_set_is_not_opened(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    async def fail(*_: object) -> None:
        monkeypatch.undo()
        raise EngineUnavailableError("the kernel refuses")

    before = left_behind(plane.settings.state_dir)
    monkeypatch.setattr(plane.engine, step, fail)
    with pytest.raises(EngineUnavailableError, match="the kernel refuses"):
        await plane.sessions.create(TESTER, NewSession(permission_level="slow"))
    assert left_behind(plane.settings.state_dir) == before


async def test_the_kernel_is_tried(sandbox_image: str) -> None:
    engine = DockerEngine(secrets.token_hex(4), timeout=60)
    try:
        await engine.try_link(sandbox_image)
        with pytest.raises(EngineUnavailableError):
            await engine.try_link("paddock/there-is-none:latest")
    finally:
        await engine.close()
