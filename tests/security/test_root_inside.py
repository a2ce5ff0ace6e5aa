"""Root inside, at an operator's level like high: commands with uid 0 try to be more than that"""

import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from sandbox_agent.enforce.root_inside.namespace import KEPT
from tests.security.test_isolation import (
    assert_unharmed,
    attack,
    inner_parent,
    start_victim,
)
from tests.support.attempts import attempt
from tests.support.box import TESTER, Box, inner_pid
from tests.support.plane import opened
from tests.support.root_levels import LEVEL, write_root_level

pytestmark = pytest.mark.asyncio(loop_scope="module")

LAYERED = "layered"
LAYER_BYTES = 64 * 1024 * 1024


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(
    sandbox_image: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ControlPlane]:
    directory = tmp_path_factory.mktemp("levels")
    write_root_level(directory, network="open")
    write_root_level(directory, f"root_bytes = {LAYER_BYTES}", name=LAYERED, rank=401)
    async with opened(image=sandbox_image, levels_dir=directory) as plane:
        yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[LEVEL, LAYERED])
async def box(plane: ControlPlane, request: pytest.FixtureRequest) -> AsyncIterator[Box]:
    box = await Box.create(plane, request.param)
    yield box
    await assert_well(box)
    await box.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def layered(plane: ControlPlane) -> AsyncIterator[Box]:
    box = await Box.create(plane, LAYERED)
    yield box
    await assert_well(box)
    await box.close()


async def assert_well(box: Box) -> None:
    assert box.agent().is_running()
    assert (await box.run("echo well")).stdout == "well\n"


@attempt(
    "capabilities besides those for its own files, in any set",
    layer="user namespace, bounding set",
    levels="high",
)
async def test_few_capabilities_are_kept(box: Box) -> None:
    status = dict(
        line.split(":\t", 1)
        for line in (await box.run("cat /proc/self/status")).stdout.splitlines()
    )
    kept = f"{sum(1 << capability for capability in KEPT):016x}"
    sets = {name: status[f"Cap{name}"] for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")}
    nothing = "0" * 16
    assert sets == {"Inh": nothing, "Prm": kept, "Eff": kept, "Bnd": kept, "Amb": nothing}
    assert status["NoNewPrivs"] == "1"
    assert status["Groups"].split() == []
    for kind in ("uid", "gid"):
        (line,) = (await box.run(f"cat /proc/self/{kind}_map")).stdout.splitlines()
        assert line.split() == ["0", str(box.uid), "1"]
    argv = ["bash", "-c", "echo up; exec sleep 1000"]
    sleeping = await box.start(argv=argv, background=True)
    await box.printed(sleeping, "up")
    (process,) = box.processes()
    assert set(process.uids()) == set(process.gids()) == {box.uid}
    await box.cancel(sleeping)


@attempt("the agent, from root inside", layer="uid, user namespace, Landlock scopes", levels="high")
async def test_the_agent_is_out_of_reach(box: Box) -> None:
    assert await attack(box, 1) == {}
    await assert_well(box)


@attempt("guards, from root inside", layer="uid, user namespace, Landlock scopes", levels="high")
async def test_guards_are_out_of_reach(box: Box) -> None:
    command, pid = await start_victim(box)
    guard = await inner_parent(box, pid)
    assert guard > 1
    assert await attack(box, guard) == {}
    await assert_unharmed(box, command)


@attempt("another command, from root inside", layer="Landlock scopes", levels="high")
async def test_another_command_is_out_of_reach(box: Box) -> None:
    command, pid = await start_victim(box)
    assert await attack(box, pid) == {}
    await assert_unharmed(box, command)


@attempt("workers of the files API, from root inside", layer="Landlock scopes", levels="high")
async def test_file_workers_are_out_of_reach(box: Box) -> None:
    await box.write("read-me", b"x" * 100_000)
    download = await box.plane.files.read(TESTER, box.session, "read-me")
    (worker,) = box.processes()
    assert await attack(box, inner_pid(worker)) == {}
    assert b"".join([chunk async for chunk in download.chunks()]) == b"x" * 100_000
    await download.close()


# Every call that makes, enters or changes a namespace or a mount; prints what worked.
CALLS = """
import ctypes, json, os, platform
libc = ctypes.CDLL(None, use_errno=True)
worked = []
def attempt(name, value):
    if value >= 0:
        worked.append(name)
names = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")
flags = (0x02000000, 0x08000000, 0x00020000, 0x40000000, 0x20000000, 0x80, 0x10000000, 0x04000000)
clone = {"x86_64": 56, "aarch64": 220}[platform.machine()]
def forked(name, flag):
    if name != "time":  # not one of its flags
        child = libc.syscall(clone, flag | 17, 0, 0, 0, 0)
        if child == 0:
            os._exit(0)
        attempt(f"clone {name}", child)
    structure = (ctypes.c_uint64 * 11)(flag, 0, 0, 0, 17)
    child = libc.syscall(435, structure, 88)
    if child == 0:
        os._exit(0)
    attempt(f"clone3 {name}", child)
before = {name: os.readlink(f"/proc/self/ns/{name}") for name in names}
mounts = open("/proc/self/mountinfo").read()
for name, flag in zip(names, flags):
    forked(name, flag)
    attempt(f"unshare {name}", libc.unshare(flag))
    for pid in ("self", "1", str(os.getppid())):
        try:
            handle = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)
        except OSError:
            continue
        attempt(f"setns {pid} {name}", libc.setns(handle, 0))
        attempt(f"setns {pid} {name}", libc.setns(handle, flag))
attempt("mount", libc.mount(b"none", b"/tmp", b"tmpfs", 0, None))
attempt("proc", libc.mount(b"none", b"/tmp", b"proc", 0, None))
attempt("bind", libc.mount(b"/workspace", b"/tmp", None, 4096, None))
attempt("remount", libc.mount(None, b"/workspace", None, 32, None))
attempt("remount of root", libc.mount(None, b"/", None, 32, None))
attempt("overlay", libc.mount(b"o", b"/tmp", b"overlay", 0, b"lowerdir=/usr:/etc"))
for place in (b"/proc", b"/usr", b"/etc", b"/run/paddock", b"/opt/paddock", b"/workspace"):
    attempt(f"umount {place}", libc.umount2(place, 2))
attempt("chroot", libc.chroot(b"/workspace"))
attempt("open_tree", libc.syscall(428, -100, b"/usr", 1))
attempt("fsopen", libc.syscall(430, b"tmpfs", 0))
attempt("sethostname", libc.sethostname(b"mine", 4))
attempt("swapon", libc.swapon(b"/workspace/file", 0))
attempt("keyctl", libc.syscall({"x86_64": 250, "aarch64": 219}[platform.machine()], 0, -3, 1))
print(json.dumps([
    worked,
    before == {name: os.readlink(f"/proc/self/ns/{name}") for name in names},
    mounts == open("/proc/self/mountinfo").read(),
]))
"""


@attempt(
    "further namespaces, mounts, and other calls of administrators, from root inside",
    layer="seccomp, Landlock, bounding set",
    levels="high",
)
async def test_no_namespace_and_no_mount(box: Box) -> None:
    assert (await box.python(CALLS)).value == [[], True, True]


# Tries to make devices, to get other identities, and to change what is the host's; prints what is.
POWERS = """
import json, os, socket, stat
found = []
def attempt(name, call):
    try:
        call()
        found.append(name)
    except OSError:
        pass
for place in ("/workspace", "/tmp", "/var/tmp", "/etc"):
    for kind, name in ((stat.S_IFCHR, "char"), (stat.S_IFBLK, "block")):
        attempt(f"{name} in {place}", lambda: os.mknod(f"{place}/{name}", 0o666 | kind, 0x103))
for uid in (1, 33, 65534, 1000):
    attempt(f"uid {uid}", lambda: os.setresuid(uid, uid, 0))
    attempt(f"gid {uid}", lambda: os.setresgid(uid, uid, 0))
    open("/workspace/file", "w").close()
    os.chown("/workspace/file", uid, uid)  # answered, and nothing happens
if os.stat("/workspace/file").st_uid != 0:
    found.append("another owner")
os.setgroups([5, 0])  # the same
if os.getgroups():
    found.append("groups")
for path in (
    "/proc/sys/kernel/hostname", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger",
    "/proc/self/uid_map", "/proc/self/gid_map", "/proc/self/setgroups", "/proc/1/oom_score_adj",
    "/proc/1/mem", "/proc/1/environ", "/sys/kernel/uevent_helper", "/dev/kmsg", "/dev/mem",
    "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/opt/paddock/__main__.py",
    "/opt/paddock/lib/loader", "/opt/paddock/sandbox_agent/__init__.py", "/run/paddock/x",
    "/new", "/boot/new", *(() if os.access("/usr", os.W_OK) else ("/run/new",)),
):
    attempt(f"write {path}", lambda: os.close(os.open(path, os.O_WRONLY | os.O_CREAT)))
for path in ("/run/paddock", "/run/paddock/control.sock"):
    attempt(f"list {path}", lambda: os.listdir(path))
    attempt(f"chmod {path}", lambda: os.chmod(path, 0o777))
    attempt(f"chown {path}", lambda: os.chown(path, 0, 0))
for path in ("/opt/paddock", "/etc/hosts", "/dev/null", "/proc/1", "/tmp", "/"):
    attempt(f"chmod {path}", lambda: os.chmod(path, 0o777))
    attempt(f"take {path}", lambda: os.chown(path, 0, 0))
for name in ("trusted.overlay.redirect", "trusted.overlay.opaque", "security.capability"):
    attempt(name, lambda: os.setxattr("/workspace/file", name, b"\\x01\\0\\0\\2" + b"\\xff" * 16))
    attempt(f"{name} in the layer", lambda: os.setxattr("/var/tmp", name, b"/etc"))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, 0, -5))
attempt("interface", lambda: socket.if_nameindex() and os.open("/dev/net/tun", os.O_RDWR))
print(json.dumps(found))
"""


@attempt(
    "devices, other users, files of the host's root, marks of the layer, from root inside",
    layer="user namespace, bounding set, mounts",
    levels="high",
)
async def test_nothing_of_the_hosts_is_had(box: Box) -> None:
    assert (await box.python(POWERS)).value == []


SETUID = """
for place in /workspace /tmp /usr/bin; do
    test -w $place || continue
    cp /usr/bin/python3 $place/held && chmod 6755 $place/held && test -u $place/held
    $place/held -c 'import os; print(os.getresuid() + os.getresgid())'
done
exec ./held -c 'import time; print("held", flush=True); time.sleep(1000)'
"""


@attempt(
    "setuid and setgid files in the workspace, /tmp and the layer, from root inside",
    layer="user namespace, nosuid, no_new_privs",
    levels="high",
)
async def test_setuid_files_give_nothing(box: Box) -> None:
    command = await box.start(argv=["bash", "-c", SETUID], background=True)
    said = await box.printed(command, "held")
    *lines, _ = said.splitlines()
    assert len(lines) >= 2
    assert set(lines) == {"(0, 0, 0, 0, 0, 0)"}
    held = [each for each in box.processes() if "time.sleep" in " ".join(each.cmdline())]
    assert {uid for each in held for uid in (*each.uids(), *each.gids())} == {box.uid}
    await box.cancel(command)
    status = (box.workspace / "held").stat()
    assert (status.st_uid, status.st_gid) == (box.uid, box.uid)


def contents(layers: tuple[str, ...]) -> dict[str, str]:
    """Some files of an image's layers on the host: owner, mode, times and content."""
    found = {}
    for layer in layers:
        for name in ("etc/passwd", "etc/shadow", "usr/bin/bash", "var/lib/dpkg/status"):
            path = Path(layer) / name
            if path.is_file():
                status = path.stat()
                facts = (status.st_uid, status.st_gid, status.st_mode, status.st_mtime_ns)
                found[str(path)] = f"{facts} {hashlib.sha256(path.read_bytes()).hexdigest()}"
    return found


@attempt(
    "the image's own files, through the writable layer: changed, given away, removed",
    layer="overlay",
    levels="high",
)
async def test_the_image_stays_as_it_is(plane: ControlPlane, layered: Box) -> None:
    image = await plane.node.engine.image(plane.settings.image)
    assert image is not None
    before = contents(image.layers)
    assert len(before) >= 3
    done = await layered.bash(
        "echo mine >> /etc/passwd; chmod 777 /etc/shadow; echo x > /usr/bin/bash.new &&"
        "mv /usr/bin/bash.new /usr/bin/python-mine; rm -rf /usr/share/zoneinfo /var/lib/dpkg/info;"
        "cp /usr/bin/true /usr/bin/bash; chown 0:0 /etc/shadow; rm /var/lib/dpkg/status"
    )
    assert done.exit_code == 0, done.stderr
    assert contents(image.layers) == before
    other = await Box.create(plane, LAYERED)
    seen = await other.bash("tail -n1 /etc/passwd; ls /usr/share/zoneinfo | head -n1; echo y")
    assert seen.exit_code == 0
    assert "mine" not in seen.stdout
    assert seen.stdout.splitlines()[-1] == "y"
    await other.close()


@attempt("a layer that is filled to its end", layer="size of its image", levels="high")
async def test_a_full_layer_hurts_its_own_session_only(plane: ControlPlane) -> None:
    box, other = await Box.create(plane, LAYERED), await Box.create(plane, LAYERED)
    done = await box.bash("head -c 1G /dev/zero > /var/filling; stat -c %s /var/filling")
    assert "No space left" in done.stderr
    assert 0 < int(done.stdout) < LAYER_BYTES
    directory = box.session.check_open().directory.layer
    assert sum(each.stat().st_blocks * 512 for each in directory.glob("*.img")) <= LAYER_BYTES
    assert (await box.run("echo still")).stdout == "still\n"
    await box.write("written", b"here")
    written = await other.bash("head -c 16M /dev/zero > /var/own; stat -c %s /var/own")
    assert (written.exit_code, written.stdout) == (0, f"{16 * 1024 * 1024}\n")
    await box.close()
    await other.close()


@attempt("another session, and its files, from root inside", layer="uid, mounts", levels="high")
async def test_other_sessions_are_out_of_reach(plane: ControlPlane, box: Box) -> None:
    other = await Box.create(plane, "high")
    secret = os.urandom(8).hex()
    await other.write("secret", secret.encode())
    sleeping = await other.start("sleep 2345", background=True)
    done = await box.bash(
        f"cat {other.workspace}/secret /workspace/../secret; "
        "grep -rs . --include=secret /workspace /tmp /var /home /root /srv 2>/dev/null; "
        "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; kill -9 -1"
    )
    assert secret not in done.stdout + done.stderr
    assert "sleep 2345" not in done.stdout
    assert [each for each in other.processes() if each.is_running()]
    await other.cancel(sleeping)
    await other.close()


async def test_every_program_is_on_record(box: Box) -> None:
    done = await box.bash("/usr/bin/true; bash -c '/usr/bin/id -u'")
    assert done.stdout == "0\n"
    events = await box.events("command.exec")
    own = [e["args"] for e in events if e["args"]["command_id"] == done.command.id]
    assert [each["path"] for each in own] == ["/usr/bin/true", "/usr/bin/bash", "/usr/bin/id"]


async def test_a_session_that_ends_leaves_nothing(plane: ControlPlane) -> None:
    box = await Box.create(plane, LAYERED)
    directory = box.session.check_open().directory
    image = next(directory.layer.glob("*.img"))
    await box.close()
    assert not directory.path.exists()
    assert str(directory.path) not in Path("/proc/self/mountinfo").read_text()
    assert all(
        image.name not in each.read_text() or str(directory.path) not in each.read_text()
        for each in Path("/sys/block").glob("loop*/loop/backing_file")
    )
