"""Ways out of a workspace through patches, copies, searches, removals of trees, and watches.

The tests check effects: nothing outside is read, appears, changes or disappears.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.ground.errors import PaddockError, PermissionDeniedError
from tests.support.attempts import attempt
from tests.support.box import TESTER, Box

pytestmark = pytest.mark.asyncio(loop_scope="module")

CANARY = b"canary-outside-the-workspace\n"


@pytest.fixture
def outside(low: Box, tmp_path: Path) -> Iterator[Path]:
    """Files of the host that every user may read and write, and links to them in the workspace."""
    tmp_path.chmod(0o777)
    secret = tmp_path / "secret"
    secret.write_bytes(CANARY)
    secret.chmod(0o666)
    for name, target in (("out", tmp_path), ("file-out", secret), ("etc", Path("/etc"))):
        link = low.workspace / name
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    yield tmp_path
    assert sorted(os.listdir(tmp_path)) == ["secret"]
    assert secret.read_bytes() == CANARY


NAMES = {
    "dots": "../{outside}/secret",
    "dots within": "sub/../../{outside}/secret",
    "absolute": "{outside}/secret",
    "directory link": "out/secret",
    "file link": "file-out",
}


@attempt(
    "a patch of a file outside, by `..`, an absolute path or a link", layer="agent", levels="low"
)
@pytest.mark.parametrize("name", NAMES)
async def test_a_patch_does_not_leave(low: Box, outside: Path, name: str) -> None:
    path = NAMES[name].format(outside=str(outside).lstrip("/"))
    path = f"/{path}" if name == "absolute" else path
    text = f"--- {path}\n+++ {path}\n@@ -1 +1 @@\n-{CANARY.decode()}+changed\n"
    with pytest.raises(PaddockError):
        await low.plane.file_trees.patch(TESTER, low.session, ".", text)
    made = f"--- /dev/null\n+++ {path}.new\n@@ -0,0 +1 @@\n+made\n"
    if name != "file link":  # that name is in the workspace
        with pytest.raises(PaddockError):
            await low.plane.file_trees.patch(TESTER, low.session, ".", made)


@attempt("… named by the agent's own request", layer="agent", levels="low")
@pytest.mark.parametrize("path", ["../etc/passwd", "etc/passwd", "/etc/passwd", "/proc/self/mem"])
async def test_the_agent_refuses_it_as_well(low: Box, outside: Path, path: str) -> None:
    text = "--- x\n+++ x\n@@ -0,0 +1 @@\n+made\n"
    with pytest.raises(PaddockError):
        await low.ask("file.patch", patch=text, names={"x": path}, dry_run=False)
    with pytest.raises(PaddockError):
        await low.ask("file.patch", patch=text, names={"y": "inside"}, dry_run=False)


@attempt("the removal of a tree with links out", layer="agent", levels="low")
async def test_a_removal_follows_no_link(low: Box, outside: Path) -> None:
    await low.mkdir("tree/deep")
    (low.workspace / "tree/deep/out").symlink_to(outside)
    (low.workspace / "tree/secret").symlink_to(outside / "secret")
    await low.plane.files.delete(TESTER, low.session, "tree", recursive=True)
    assert not (low.workspace / "tree").exists()
    with pytest.raises(PaddockError):
        await low.plane.files.delete(TESTER, low.session, "out/secret", recursive=True)
    for path in ("..", "../..", "/etc", "/"):
        with pytest.raises(PaddockError):
            await low.plane.files.delete(TESTER, low.session, path, recursive=True)


@attempt("a copy from outside, or to it", layer="agent", levels="low")
async def test_a_copy_does_not_leave(low: Box, outside: Path) -> None:
    await low.write("inside", b"x")
    for source in ("out/secret", "etc/hostname", "../etc/hostname", "/etc/hostname"):
        with pytest.raises(PaddockError):
            await low.plane.file_trees.copy(TESTER, low.session, source, "copied")
    for destination in ("out/copied", "../copied", str(outside / "copied"), "out/new/copied"):
        with pytest.raises(PaddockError):
            await low.plane.file_trees.copy(
                TESTER, low.session, "inside", destination, parents=True
            )
    assert not (low.workspace / "copied").exists()
    # A link is copied as a link, never what it leads to.
    await low.plane.file_trees.copy(TESTER, low.session, "file-out", "copied")
    assert (low.workspace / "copied").is_symlink()
    await low.delete("copied")


@attempt("a search, a watch or new permissions through links out", layer="agent", levels="low")
async def test_nothing_else_leaves(low: Box, outside: Path) -> None:
    found = await low.plane.file_trees.search(TESTER, low.session, ".", "canary")
    assert not found.matches
    for path in ("out", "file-out", "etc", "..", "/etc"):
        with pytest.raises(PaddockError):
            await low.plane.file_trees.search(TESTER, low.session, path, "canary")
        with pytest.raises(PaddockError):
            await low.plane.file_trees.watch(TESTER, low.session, path)
        with pytest.raises(PaddockError):
            await low.plane.files.chmod(TESTER, low.session, path, 0o777)
    with pytest.raises(PermissionDeniedError):
        await low.plane.files.list(TESTER, low.session, "etc", 64, "*")


FLIP = """
import ctypes, os
libc = ctypes.CDLL(None)
os.makedirs("race/inside/x", exist_ok=True)
open("race/inside/x/f", "w").close()
if not os.path.lexists("race/other"):
    os.symlink("/etc", "race/other")
print("flipping", flush=True)
while not os.path.exists("race-is-over"):
    libc.renameat2(-100, b"race/inside", -100, b"race/other", 2)
"""


@attempt("copies and removals while a directory flips to a link out", layer="agent", levels="high")
async def test_a_race_leads_nowhere(high: Box) -> None:
    await high.bash("rm -rf race race-is-over copies kept")
    await high.mkdir("copies")
    flipper = await high.start(argv=["python3", "-c", FLIP], background=True, timeout=600)
    await high.printed(flipper, "flipping")
    before = (await high.bash("ls -la /etc | md5sum")).stdout
    for number in range(100):
        try:
            await high.plane.file_trees.copy(
                TESTER, high.session, "race", f"copies/{number}", parents=True
            )
            await high.ask("file.delete", path="race/inside/hostname", recursive=True)
        except PaddockError:
            continue
    await high.write("race-is-over", b"")
    assert (await high.finish(flipper)).exit_code == 0
    copied = (await high.bash("find copies -name hostname -o -name passwd")).stdout
    assert copied == ""
    assert (await high.bash("ls -la /etc | md5sum")).stdout == before
