"""Ways out of a workspace through the files API, and through commands that take paths.

The tests check effects: no byte of a file outside is read, and no file outside appears, changes
or disappears.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.ground.errors import NotFoundError, PaddockError, PermissionDeniedError
from tests.support.attempts import attempt
from tests.support.box import Box

pytestmark = pytest.mark.asyncio(loop_scope="module")

CANARY = b"canary-outside-the-workspace"
# Each leads from the workspace's root to /etc/hostname or its directory.
LINKS = {
    "absolute": "/etc/hostname",
    "relative": "../etc/hostname",
    "proc": "/proc/self/root/etc/hostname",
    "own cwd": "/proc/self/cwd/../etc/hostname",
    "through itself": "./sub/../../etc/hostname",
    "workspace by its absolute path": "/workspace/file",
}


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """Files of the host, outside the workspace, that every user may read and write."""
    tmp_path.chmod(0o777)
    secret = tmp_path / "secret"
    secret.write_bytes(CANARY)
    secret.chmod(0o666)
    yield tmp_path
    assert sorted(os.listdir(tmp_path)) == ["secret"]
    assert secret.read_bytes() == CANARY


async def prepare(box: Box) -> None:
    """Creates a file inside, and links that lead out."""
    await box.mkdir("sub")
    await box.write("file", b"inside")
    for name, target in LINKS.items():
        link = box.workspace / name
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    directory = box.workspace / "directory"
    directory.unlink(missing_ok=True)
    directory.symlink_to("/etc")


@attempt(
    "a link out of the workspace, read by the files API or a command",
    layer="agent, guard",
    levels="low",
)
@pytest.mark.parametrize("name", LINKS)
async def test_a_link_out_is_not_read_through(low: Box, name: str) -> None:
    await prepare(low)
    with pytest.raises(PermissionDeniedError) as refused:
        await low.read(name)
    assert refused.value.fields["rule"] == "path-outside-workspace"
    with pytest.raises(PermissionDeniedError):
        await low.run(argv=["cat", name])


@attempt("… written to", layer="agent", levels="low")
@pytest.mark.parametrize("mode", ["overwrite", "append"])
@pytest.mark.parametrize("name", LINKS)
async def test_a_link_out_is_not_written_through(low: Box, name: str, mode: str) -> None:
    await prepare(low)
    with pytest.raises(PaddockError):
        await low.write(name, b"overwritten", mode=mode)
    assert (low.workspace / name).is_symlink()
    assert await low.read("file") == b"inside"


@attempt("a link to a directory outside, for every operation on files", layer="agent", levels="low")
async def test_a_directory_link_out_leads_nowhere(low: Box) -> None:
    await prepare(low)
    for work in (
        low.read("directory/hostname"),
        low.stat("directory/hostname"),
        low.listing("directory"),
        low.write("directory/new", b"x"),
        low.write("directory/new", b"x", mode="append"),
        low.mkdir("directory/new"),
        low.mkdir("directory/new/below"),
        low.delete("directory/hostname"),
        low.move("directory/hostname", "stolen"),
        low.move("file", "directory/file"),
    ):
        with pytest.raises(PermissionDeniedError):
            await work
    assert "stolen" not in await low.paths()


async def test_links_themselves_can_be_seen_moved_and_removed(low: Box) -> None:
    await prepare(low)
    for name in [*LINKS, "directory"]:
        assert (await low.stat(name)).type == "symlink"
        await low.move(name, f"moved {name}")
        await low.delete(f"moved {name}")
    found = await low.listing(".", depth=3)
    assert not [item for item in found.entries if item.type == "symlink"]
    assert (await low.run("ls")).exit_code == 0


async def test_links_inside_are_followed(low: Box) -> None:
    await low.mkdir("real")
    await low.write("real/file", b"content")
    for name, target in {"to-file": "real/file", "to-dir": "real", "up": "real/../real"}.items():
        (low.workspace / name).symlink_to(target)
    assert await low.read("to-file") == b"content"
    assert await low.read("to-dir/file") == b"content"
    assert await low.read("up/file") == b"content"
    assert await low.paths("to-dir") == ["to-dir/file"]
    await low.write("to-dir/new", b"x")
    assert sorted(await low.paths("real")) == ["real/file", "real/new"]
    await low.delete("to-file")
    assert await low.read("real/file") == b"content"


@attempt(
    "a path that names the outside, for every operation on files",
    layer="control plane",
    levels="low",
)
@pytest.mark.parametrize(
    "path",
    ["..", "../x", "/etc/passwd", "/", "sub/../../etc/passwd", "/workspace/../etc/passwd", "//etc"],
)
async def test_a_path_that_names_the_outside_is_refused_and_recorded(low: Box, path: str) -> None:
    before = len(await low.events(decision="deny"))
    for operation in (low.read, low.write, low.delete, low.mkdir, low.stat, low.listing):
        with pytest.raises(PermissionDeniedError) as refused:
            await operation(path)
        assert refused.value.fields["rule"] == "path-outside-workspace"
    for source, destination in ((path, "x"), ("x", path)):
        with pytest.raises(PermissionDeniedError):
            await low.move(source, destination)
    assert len(await low.events(decision="deny")) == before + 8


@attempt("links in a circle", layer="agent", levels="low")
async def test_loops_end(low: Box) -> None:
    (low.workspace / "loop").symlink_to("loop")
    (low.workspace / "around").symlink_to(".")
    with pytest.raises(PaddockError):
        await low.read("loop")
    with pytest.raises(PaddockError):
        await low.read("around/" * 60 + "file")
    found = await low.listing(".", depth=64)
    assert len(found.entries) < 100
    await low.delete("loop")
    await low.delete("around")


@attempt("a link to a file of the host", layer="mounts", levels="high")
async def test_a_workspace_holds_no_way_to_the_host(high: Box, outside: Path) -> None:
    """Paths that exist on the host, outside the workspace, do not exist in the sandbox."""
    up = "../" * 12
    for target in (str(outside / "secret"), f"{up}{outside}/secret"):
        (high.workspace / "to-host").unlink(missing_ok=True)
        (high.workspace / "to-host").symlink_to(target)
        with pytest.raises((PermissionDeniedError, NotFoundError)):
            await high.read("to-host")
        assert CANARY.decode() not in (await high.bash("cat to-host; true")).stdout
        with pytest.raises(PaddockError):
            await high.write("to-host", b"x", mode="append")


# Races: a command exchanges the target of a path as fast as it can while the path is used

FLIP = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
kind = sys.argv[1]
os.makedirs("race/inside", exist_ok=True)
with open("race/inside/hostname", "w") as file:
    file.write("inside")
if kind == "directory":
    a, b = b"race/inside", b"race/out"
    os.symlink("/etc", b)
elif kind == "file":
    a, b = b"race/name", b"race/out"
    os.symlink("/etc/hostname", b)
    with open(a, "w") as file:
        file.write("inside")
else:
    os.makedirs("race/deep/er", exist_ok=True)
    with open("race/deep/er/hostname", "w") as file:
        file.write("inside")
    a, b = b"race/deep", b"elsewhere"
    os.mkdir(b)
print("flipping", flush=True)
exchange = 2
while not os.path.exists("race-is-over"):
    libc.renameat2( -100, a, -100, b, exchange)
"""
# On a busy machine, an operation takes 0.1 s and rarely coincides with an exchange.
MOST_TRIES = 2_000
PATHS = {
    "directory": "race/inside/hostname",
    "file": "race/name",
    "dots": "race/deep/er/../../../../etc/hostname",
}


@attempt(
    "500 operations on files while a directory, a file or `..` flips", layer="agent", levels="high"
)
@pytest.mark.parametrize("kind", PATHS)
async def test_a_race_leads_nowhere(high: Box, kind: str) -> None:
    await high.bash("rm -rf race race-is-over elsewhere")
    flipper = await high.start(argv=["python3", "-c", FLIP, kind], background=True, timeout=600)
    await high.printed(flipper, "flipping")
    path, seen, refused, number = PATHS[kind], set(), 0, 0
    # The API resolves `..` as text, so the test asks the agent directly, which could be tricked.
    # On a busy machine, exchanges and operations alternate and rarely coincide.
    while number < 500 or (not refused and number < MOST_TRIES):
        number += 1
        try:
            if number % 2:
                opened = await high.ask("file.open", op="read", path=path)
                data = await high.ask("file.pull", stream=opened["stream"], limit=4096)
                seen.add(data["data"])
                await high.ask("file.close", stream=opened["stream"], commit=False)
            else:
                mode = "write" if number % 4 else "append"
                opened = await high.ask("file.open", op=mode, path=path)
                await high.ask("file.push", stream=opened["stream"], data=b"")
                await high.ask("file.close", stream=opened["stream"], commit=True)
        except PaddockError:
            refused += 1
    await high.write("race-is-over", b"")
    assert (await high.finish(flipper)).exit_code == 0
    # The content inside, or nothing; a hostname would be neither.
    assert seen <= {b"inside", b""}
    if not refused:
        print(f"{number} operations never met the flipping: this run says nothing of the race")
    hostname = await high.bash("cat /etc/hostname; ls -la /etc/hostname")
    assert hostname.stdout.startswith("sandbox\n")
    names = {Path(name).name for name in await high.paths("race", depth=5)}
    assert names <= {"inside", "out", "name", "deep", "er", "hostname"}
    assert not [name for name in os.listdir(high.workspace) if name.startswith(".paddock")]


@attempt("500 commands in a directory that flips to one outside", layer="guard", levels="high")
async def test_commands_lose_the_race_as_well(high: Box) -> None:
    """At high a command may read the outside anyway; only its starting directory counts."""
    await high.bash("rm -rf race race-is-over elsewhere")
    flipper = await high.start(argv=["python3", "-c", FLIP, "directory"], background=True)
    await high.printed(flipper, "flipping")
    places = set()
    for _ in range(500):
        done = await high.run(argv=["pwd", "-P"], cwd="race/inside")
        places.add(done.stdout)
    await high.write("race-is-over", b"")
    await high.finish(flipper)
    # The directory may have been renamed since the command entered it, but it is never outside.
    assert all(place == "" or place.startswith("/workspace/race/") for place in places)
