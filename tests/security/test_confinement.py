"""What the kernel allows and denies a command, whatever the string rules say."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from orchestrator.rules.policy import levels as level_files
from tests.support.attempts import attempt
from tests.support.box import Box, mount_options, status_of
from tests.support.plane import opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 2**20
LEVELS = ["low", "medium", "high"]
PYTHON_NEEDS = '["/usr/lib/python3.11", "/usr/lib/x86_64-linux-gnu"]'
PACKAGED = Path(level_files.__file__).with_name("levels")


@pytest.fixture
def box(request: pytest.FixtureRequest) -> Box:
    found: Box = request.getfixturevalue(request.param)
    return found


at_every_level = pytest.mark.parametrize("box", LEVELS, indirect=True)
below_high = pytest.mark.parametrize("box", ["low", "medium"], indirect=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def loose(sandbox_image: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Box]:
    """A session at low whose string rules allow interpreters, so only the kernel stops them."""
    directory = tmp_path_factory.mktemp("levels")
    text = (PACKAGED / "low.toml").read_text()
    text = text.replace('"pwd",', '"pwd", "bash", "python3", "true",', 1)
    # The interpreter's own files.
    text = text.replace("paths = true", f"paths = true\nread = {PYTHON_NEEDS}")
    (directory / "low.toml").write_text(text)
    async with opened(image=sandbox_image, levels_dir=directory) as plane:
        yield await Box.create(plane, "low")


# Facts read from the host, where no command can forge them


@at_every_level
async def test_a_command_has_no_privileges(box: Box) -> None:
    command = await box.start("cat", stdin="up", stdin_open=True)
    await box.printed(command, "up")
    process = box.process(["cat"])
    status = status_of(process)
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(status[name], 16) == 0, name
    assert set(status["Uid"].split()) == set(status["Gid"].split()) == {str(box.uid)}
    assert status["Groups"] == ""
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert Path(f"/proc/{process.pid}/oom_score_adj").read_text().strip() == "1000"
    await box.feed(command, b"", close=True)
    await box.finish(command)


@at_every_level
async def test_the_agent_has_only_what_it_needs(box: Box) -> None:
    set_gid_and_uid = 1 << 6 | 1 << 7
    agent = status_of(box.agent())
    for name in ("CapPrm", "CapEff", "CapBnd"):
        assert int(agent[name], 16) == set_gid_and_uid
    assert agent["NoNewPrivs"] == "1"


@at_every_level
async def test_mounts_are_as_the_level_says(box: Box) -> None:
    mounts = mount_options(box.agent())
    high = box.session.level.name == "high"
    assert "ro" in mounts["/"]
    for point in ("/run/paddock", "/etc/passwd", "/etc/group"):
        assert "ro" in mounts[point]
    for point in ("/workspace", "/tmp"):
        assert {"rw", "nosuid", "nodev"} <= mounts[point]
        assert ("noexec" in mounts[point]) is not high


@below_high
async def test_there_is_no_network(box: Box) -> None:
    lines = Path(f"/proc/{box.agent().pid}/net/dev").read_text().splitlines()[2:]
    assert [line.split(":")[0].strip() for line in lines] == ["lo"]


@at_every_level
async def test_limits_are_as_the_engine_reports_them(box: Box) -> None:
    wanted = box.session.limits
    found = (await box.container()).limits
    assert found == {
        "cpus": wanted.cpus,
        "memory_bytes": wanted.memory_bytes,
        "pids": wanted.pids,
    }


# Attempts inside the sandbox


async def test_no_command_spares_itself_when_memory_runs_out(high: Box) -> None:
    done = await high.bash("echo 0 > /proc/self/oom_score_adj; cat /proc/self/oom_score_adj")
    assert "Permission denied" in done.stderr
    assert done.stdout == "1000\n"


LIST_EVERYTHING = """
import os
with open("paths", "w", errors="surrogateescape") as found:
    for root, directories, files in os.walk("/"):
        directories[:] = [d for d in directories if (root, d) not in (("/", "proc"), ("/", "sys"))]
        for name in [".", *files]:
            print(os.path.join(root, name), file=found)
"""
WRITE_EVERYWHERE = """
import json, os
written = []
for line in open("paths", errors="surrogateescape"):
    path = line[:-1]
    try:
        if path.endswith("/."):
            with open(path + "probe", "w") as file:
                file.write("x")
            os.unlink(path + "probe")
        else:
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        written.append(path)
    except OSError:
        pass
below = lambda path: any(path.startswith(above[:-1]) for above in written if above.endswith("/."))
print(json.dumps(sorted(path.removesuffix("/.") for path in written
                        if path.endswith("/.") or not below(path))))
"""
# Devices that every user may write; they keep no data.
NAMES = ("full", "null", "random", "tty", "urandom", "zero", "ptmx", "pts/ptmx", "stdin")
DEVICES = {f"/dev/{name}" for name in NAMES}


@attempt(
    "every existing file and directory, opened for writing",
    layer="read-only root, Landlock",
    levels="low",
)
async def test_only_workspace_and_tmp_can_be_written(loose: Box, high: Box) -> None:
    await high.python(LIST_EVERYTHING)
    await loose.write("paths", await high.read("paths"))
    written = set((await loose.python(WRITE_EVERYWHERE)).value)
    assert written - DEVICES == {"/tmp", "/workspace"}


@attempt(
    "the same at high, where shared memory is separate",
    layer="read-only root",
    levels="high",
)
async def test_at_high_shared_memory_can_be_written_too(high: Box) -> None:
    await high.python(LIST_EVERYTHING)
    written = set((await high.python(WRITE_EVERYWHERE)).value)
    assert written - DEVICES - {"/dev/mqueue"} == {"/tmp", "/workspace", "/dev/shm"}


NOEXEC = """
import ctypes, json, mmap, os, shutil, subprocess, sys
there = lambda *paths: next(path for path in paths if os.path.exists(path))
libc = there("/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6")
loader = there("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")
place = sys.argv[1]
ran = []
def attempt(name, work):
    try:
        if work() == 0:
            ran.append(name)
    except OSError:
        pass
binary, library, script = place + "/binary", place + "/library.so", place + "/script"
shutil.copy("/bin/true", binary)
shutil.copy(libc, library)
with open(script, "w") as file:
    file.write("#!/bin/sh\\nexit 0\\n")
for path in (binary, library, script):
    os.chmod(path, 0o755)
run = lambda *argv, **more: subprocess.run(argv, capture_output=True, **more).returncode
attempt("binary", lambda: run(binary))
attempt("script", lambda: run(script))
attempt("loader", lambda: run(loader, binary))
attempt("library", lambda: 0 if ctypes.CDLL(library) else 1)
def fd_exec():
    fd = os.open(binary, os.O_RDONLY)
    pid = os.fork()
    if pid == 0:
        try:
            os.execve(fd, ["x"], {})
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1]
attempt("by descriptor", fd_exec)
def map_executable():
    with open(binary, "rb") as file:
        mmap.mmap(file.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC).close()
    return 0
attempt("mapping", map_executable)
print(json.dumps(ran))
"""


@attempt(
    "a copied program, script or library, run by an interpreter",
    layer="noexec mount, Landlock",
    levels="low",
)
@pytest.mark.parametrize("place", ["/workspace", "/tmp"])
async def test_nothing_of_ones_own_is_executed(loose: Box, high: Box, place: str) -> None:
    assert (await loose.python(NOEXEC, place)).value == []
    # All attempts work at high, which allows them.
    assert (await high.python(NOEXEC, place)).value == [
        "binary",
        "script",
        "loader",
        "library",
        "by descriptor",
        "mapping",
    ]


async def test_tmp_is_as_large_as_its_limit(loose: Box, high: Box) -> None:
    fill = "rm -f /tmp/*; head -c {size} /dev/zero > /tmp/fill; stat -c %s /tmp/fill; rm /tmp/fill"
    for box in (loose, high):
        most = box.session.limits.tmp_bytes
        done = await box.bash(fill.format(size=most + 10 * MIB))
        assert int(done.stdout) == most
        assert "No space left" in done.stderr


REACH = """
import json, socket
reached = []
for family, kind, address in [
    (socket.AF_INET, socket.SOCK_STREAM, ("1.1.1.1", 443)),
    (socket.AF_INET, socket.SOCK_DGRAM, ("8.8.8.8", 53)),
    (socket.AF_INET, socket.SOCK_STREAM, ("172.17.0.1", 22)),
    (socket.AF_INET, socket.SOCK_STREAM, ("169.254.169.254", 80)),
    (socket.AF_INET6, socket.SOCK_STREAM, ("2606:4700:4700::1111", 443)),
]:
    try:
        with socket.socket(family, kind) as probe:
            probe.settimeout(5)
            probe.connect(address)
            probe.send(b"x")
            reached.append(address[0])
    except OSError as error:
        assert error.errno in (101, 99, 97), error
print(json.dumps(reached))
"""


@attempt(
    "the Internet, a name server, the host and a metadata service, from Python",
    layer="network namespace",
    levels="low",
)
async def test_without_a_network_nothing_is_reached(loose: Box) -> None:
    assert (await loose.python(REACH)).value == []


@attempt(
    "root, by every call that changes a user, and by setuid files such as `su`",
    layer="uid without capabilities, no setuid bits",
    levels="high",
)
async def test_root_cannot_be_had_again(high: Box) -> None:
    script = """
import ctypes, json, os
gained = []
for name, call in [
    ("setuid", lambda: os.setuid(0)),
    ("setgid", lambda: os.setgid(0)),
    ("setgroups", lambda: os.setgroups([0])),
    ("setresuid", lambda: os.setresuid(0, 0, 0)),
    ("chroot", lambda: os.chroot("/tmp")),
    ("mknod", lambda: os.mknod("/workspace/disk", 0o60600, os.makedev(8, 0))),
    ("chown", lambda: os.chown("/workspace", 0, 0)),
    ("mount", lambda: mount()),
    ("unshare", lambda: unshare()),
    ("setns", lambda: setns()),
]:
    def check(value):
        if value < 0:
            raise OSError(ctypes.get_errno(), "")
    libc = ctypes.CDLL(None, use_errno=True)
    mount = lambda: check(libc.mount(b"none", b"/tmp", b"tmpfs", 0, None))
    unshare = lambda: check(libc.unshare(0x00020000))
    setns = lambda: check(libc.setns(os.open("/proc/1/ns/net", os.O_RDONLY), 0))
    try:
        call()
        gained.append(name)
    except OSError:
        pass
print(json.dumps(gained))
"""
    assert (await high.python(script)).value == []
    assert json.loads((await high.bash("find / -xdev -perm /6000 -type f | wc -l")).stdout) == 0
