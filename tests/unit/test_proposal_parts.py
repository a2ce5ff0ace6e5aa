"""The decisions and steps of proposals: names, diffs, selections, and commits that are killed."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.host.workspace.staged import base as records
from orchestrator.host.workspace.staged import commit as commits
from orchestrator.host.workspace.staged import diff
from orchestrator.host.workspace.staged.changes import RefusedEntry, walk
from orchestrator.host.workspace.staged.commit import CommitError, Staged
from orchestrator.host.workspace.staged.commit_steps import CommitSelection, Expected
from orchestrator.host.workspace.staged.diff import Effort, changed_blocks, unified
from orchestrator.host.workspace.staged.names import (
    bad_attributes,
    bad_facts,
    bad_name,
    bad_place,
    bad_target,
    printable_name,
)
from orchestrator.host.workspace.staged.review_page import page

pytestmark = pytest.mark.slow

ALL = CommitSelection(None, None)
Tree = dict[str, tuple[str, int, bytes]]


@pytest.mark.parametrize(
    ("ref", "target", "leads_in"),
    [
        ("link", b"file", True),
        ("a/link", b"../file", True),
        ("a/b/link", b"../../x/y", True),
        ("link", b"./a/./b", True),
        ("link", b"..", False),
        ("a/link", b"../..", False),
        ("link", b"/etc/passwd", False),
        ("link", b"/workspace/file", False),
        # Another name may itself be a link, after which `..` leads anywhere.
        ("link", b"a/../b", False),
        ("a/link", b"../b/../../c", False),
        ("link", b"\xff", False),
    ],
)
def test_links_lead_into_the_workspace(ref: str, target: bytes, leads_in: bool) -> None:
    assert (bad_target(ref, target) is None) == leads_in


def test_names_and_places() -> None:
    assert bad_name("grün ☃".encode()) is None
    for name in (b"a\nb", b"\x1b[31m", b"\x7f", b"\xff\xfe", "\x9b1m".encode()):
        assert bad_name(name) is not None
        assert printable_name(name).isprintable()
    assert bad_place(b"/".join([b"d"] * 128)) is None
    assert bad_place(b"/".join([b"d"] * 129)) is not None
    assert bad_place(b"x" * 4097) is not None


def test_facts() -> None:
    assert bad_facts("file", 0o100755, 1, 10, 8) is None
    assert bad_facts("file", 0o100755, 1, 1 << 40, 8) is not None  # a hole
    assert bad_facts("file", 0o100755, 2, 10, 8) is not None
    assert bad_facts("directory", 0o040755, 9, 4096, 8) is None
    for mode in (0o4755, 0o2755, 0o1755):
        assert bad_facts("file", mode, 1, 10, 8) is not None
        assert bad_facts("directory", mode, 2, 10, 8) is not None
    for kind in ("FIFO", "socket", "block device", "character device", "unknown"):
        assert bad_facts(kind, 0o600, 1, 0, 0) is not None
    assert bad_attributes("file", ["user.overlay.origin"]) is None
    assert bad_attributes("file", ["user.overlay.opaque"]) is not None
    for name in ("user.x", "user.overlay.overlay.opaque", "system.posix_acl_access"):
        assert bad_attributes("directory", [name]) is not None


lines = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n"]), max_size=30)


@given(lines, lines, st.booleans())
def test_blocks_turn_one_text_into_the_other(old: list[str], new: list[str], tired: bool) -> None:
    blocks = changed_blocks(old, new, Effort(10 if tired else 10_000))
    made: list[str] = []
    at = 0
    for from_old, to_old, from_new, to_new in blocks:
        assert old[at:from_old] == new[len(made) : from_new]
        made += old[at:from_old] + new[from_new:to_new]
        at = to_old
    assert made + old[at:] == new
    assert bool(blocks) == (old != new)


def test_a_diff_as_others_write_it() -> None:
    old = "".join(f"{number}\n" for number in range(20))
    new = old.replace("7\n", "seven\n", 1) + "end"
    assert unified(old, new, "a/x", "b/x", Effort()) == (
        "--- a/x\n+++ b/x\n@@ -5,7 +5,7 @@\n 4\n 5\n 6\n-7\n+seven\n 8\n 9\n 10\n"
        "@@ -18,3 +18,4 @@\n 17\n 18\n 19\n+end\n\\ No newline at end of file\n"
    )
    assert unified("", "x\n", "/dev/null", "b/x", Effort()).splitlines()[2:] == [
        "@@ -0,0 +1 @@",
        "+x",
    ]


def test_a_diff_of_hostile_texts_ends() -> None:
    """They have nothing in common but the order of their lines."""
    old = [f"{number % 7}\n" for number in range(100_000)]
    new = [f"{number % 5}\n" for number in range(100_000)]
    effort = Effort()
    assert len(changed_blocks(old, new, effort)) == 1
    assert effort.steps > diff.EFFORT - 1_000_000


class Area:
    """A workspace and a staging area, as the kernel leaves one."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.data, self.upper, self.commit = (top / name for name in ("data", "upper", "commit"))
        for path in (self.data, self.upper, self.commit):
            path.mkdir()

    def seal(self) -> None:
        """What the workspace has until now, it had when the staging began."""
        latest = max(path.lstat().st_ctime_ns for path in (self.data, *self.data.rglob("*")))
        handle = os.open(self.commit, os.O_RDONLY)
        records.write(handle, records.Base(latest, {}))
        os.close(handle)

    def put(self, ref: str, content: str, mode: int = 0o644) -> None:
        path = self.upper / ref
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        path.chmod(mode)

    def delete(self, ref: str) -> None:
        path = self.upper / ref
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path, stat.S_IFCHR, os.makedev(0, 0))

    def replace(self, ref: str) -> None:
        path = self.upper / ref
        path.mkdir(parents=True)
        os.setxattr(path, "user.overlay.opaque", b"y")

    def opened(self) -> Staged:
        return Staged(*(os.open(p, os.O_RDONLY) for p in (self.upper, self.data, self.commit)))


@pytest.fixture
def area(tmp_path: Path) -> Area:
    made = Area(tmp_path)
    for ref in ("kept", "changed", "gone", "old/x", "old/deep/y", "tree/a", "shut/in"):
        path = made.data / ref
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"old {ref}\n")
    (made.data / "was-file").write_text("f")
    (made.data / "was-dir").mkdir()
    (made.data / "was-dir" / "in").write_text("f")
    (made.data / "empty").mkdir()
    (made.data / "shut").chmod(0o500)
    made.seal()
    made.put("changed", "new\n", 0o755)
    made.delete("gone")
    made.delete("old")
    made.replace("tree")
    made.put("tree/b", "b\n")
    made.replace("empty")
    (made.upper / "shut").mkdir()
    made.put("shut/more", "m\n")
    (made.upper / "shut").chmod(0o500)
    made.put("was-file/now", "dir\n")
    made.put("was-dir", "file\n")
    made.put("n/m/o", "o\n")
    (made.upper / "n/m/link").symlink_to("../../kept")
    (made.upper / "n/m").chmod(0o750)
    return made


def tree(top: Path) -> Tree:
    found: Tree = {}
    for path in sorted(top.rglob("*")):
        mode = path.lstat().st_mode
        link = stat.S_ISLNK(mode)
        content = os.fsencode(path.readlink()) if link else b""
        content = path.read_bytes() if stat.S_ISREG(mode) else content
        found[str(path.relative_to(top))] = (oct(mode), 0 if link else mode & 0o7777, content)
    return found


class _KilledError(BaseException):
    """The helper's death."""


def killed_at(step: int) -> Callable[[], None]:
    """Ends the helper at that step."""
    left = [step]

    def reached() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise _KilledError

    return reached


def commit(
    area: Area, selection: CommitSelection = ALL, reached: Callable[[], None] = lambda: None
) -> None:
    staged = area.opened()
    try:
        prepared = commits.prepare(staged, selection)
        assert (prepared.conflicts, prepared.refused, prepared.lacking) == ([], [], [])
        commits.commit(staged, selection, prepared.digest, reached)
    finally:
        for handle in staged:
            os.close(handle)


def settle(area: Area, reached: Callable[[], None] = lambda: None) -> str | None:
    staged = area.opened()
    try:
        outcome: str | None = commits.settle(staged, reached)["settled"]
        return outcome
    finally:
        for handle in staged:
            os.close(handle)


def refs(area: Area) -> list[str]:
    staged = area.opened()
    try:
        return [found.ref for found in walk(staged.upper, staged.lower)]
    finally:
        for handle in staged:
            os.close(handle)


WANTED = {
    "changed": b"new\n",
    "kept": b"old kept\n",
    "n/m/link": b"../../kept",
    "n/m/o": b"o\n",
    "shut/in": b"old shut/in\n",
    "shut/more": b"m\n",
    "tree/b": b"b\n",
    "was-dir": b"file\n",
    "was-file/now": b"dir\n",
}


def files(found: Tree) -> dict[str, bytes]:
    return {ref: content for ref, (mode, _, content) in found.items() if not mode.startswith("0o4")}


def test_a_commit_makes_what_was_staged(area: Area) -> None:
    commit(area)
    found = tree(area.data)
    assert files(found) == WANTED
    assert found["changed"][1] == 0o755
    assert (found["shut"][1], found["n/m"][1]) == (0o500, 0o750)
    assert found["empty"][0].startswith("0o4")
    assert refs(area) == []
    assert [path.name for path in area.commit.iterdir()] == [records.RECORD]


def steps_of_a_commit() -> Iterator[int]:
    """More than there are: the last ones are never reached."""
    return iter(range(70))


def test_a_kill_at_any_step_leaves_all_or_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    """And so does a second kill, at any step of what finishes or undoes the first."""
    ended, finished = 0, 0
    for step in steps_of_a_commit():
        made = area.__wrapped__(tmp_path_factory.mktemp("area"))  # type: ignore[attr-defined]
        before, staged = tree(made.data), refs(made)
        try:
            commit(made, reached=killed_at(step))
        except _KilledError:
            ended += 1
        else:
            break
        try:
            settle(made, killed_at(step // 3))
        except _KilledError:
            ended += 1
        settle(made)
        if files(tree(made.data)) == WANTED:
            finished += 1
            assert refs(made) == []
        else:
            assert tree(made.data) == before
            assert refs(made) == staged
        assert [path.name for path in made.commit.iterdir()] == [records.RECORD]
    assert ended > 30
    assert finished > 10


def test_a_step_that_fails_undoes_all(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whichever it is; the kernel may refuse any of them when the disk is full."""
    undone = 0
    for step in range(40):
        made = area.__wrapped__(tmp_path_factory.mktemp("area"))  # type: ignore[attr-defined]
        before, staged = tree(made.data), refs(made)
        with pytest.MonkeyPatch.context() as patch:
            left = [step]
            for name in ("rename", "mkdir", "chmod"):
                _fails_once(patch, name, left)
            try:
                commit(made)
            except CommitError:
                undone += 1
            except OSError:  # what was committed is only to be cleaned up
                assert settle(made) == "committed"
                before, staged = tree(made.data), []
                assert files(before) == WANTED
            else:
                break
        assert (tree(made.data), refs(made)) == (before, staged), step
    assert undone > 10


def _fails_once(patch: pytest.MonkeyPatch, name: str, left: list[int]) -> None:
    """Lets that call fail after so many, unless another one has failed."""
    real = getattr(os, name)

    def full(*args: object, **options: object) -> None:
        if not str(args[0]).startswith(("base.json", "journal")):
            left[0] -= 1
            if left[0] == -1:
                raise OSError(28, "No space left on device")
        real(*args, **options)

    patch.setattr(os, name, full)


def test_a_part_is_committed_and_the_rest_stays_staged(area: Area) -> None:
    commit(area, CommitSelection(["n/m/o", "changed"], None))
    found = tree(area.data)
    assert (found["n/m/o"][2], found["changed"][2]) == (b"o\n", b"new\n")
    assert "n/m/link" not in found
    assert "gone" in found
    assert {"n/m/link", "gone", "tree"} <= set(refs(area))
    assert "n/m/o" not in refs(area)
    # What this commit changed is no conflict for the next.
    area.put("changed", "newer\n")
    commit(area)
    assert files(tree(area.data)) == {**WANTED, "changed": b"newer\n"}


def test_a_replaced_directory_is_committed_as_a_whole(area: Area) -> None:
    staged = area.opened()
    prepared = commits.prepare(staged, CommitSelection(["tree/b"], None))
    assert prepared.lacking == ["tree"]
    prepared = commits.prepare(staged, CommitSelection(["nothing"], None))
    assert prepared.missing == ["nothing"]
    # What goes with it is named, because the policy must allow that, too.
    assert set(commits.prepare(staged, ALL).removed) == {
        *("old/x", "old/deep", "old/deep/y", "tree/a", "was-dir/in"),
    }


def conflicts(area: Area, selection: CommitSelection = ALL) -> list[str]:
    staged = area.opened()
    try:
        return [each["ref"] for each in commits.prepare(staged, selection).conflicts]
    finally:
        for handle in staged:
            os.close(handle)


def test_what_changed_in_the_workspace_is_a_conflict(area: Area) -> None:
    assert conflicts(area) == []
    (area.data / "kept").write_text("not staged")
    (area.data / "changed").write_text("by the host")
    (area.data / "old/deep/y").chmod(0o600)
    (area.data / "n").write_text("by the host")
    assert conflicts(area) == ["changed", "n", "old"]
    assert conflicts(area, CommitSelection(["gone"], None)) == []


def test_what_was_reviewed_is_committed_or_nothing(area: Area) -> None:
    digest = "sha256:7aa7a5359173d05b63cfd682e3c38487f3cb4f7f1d60659fe59fab1505977d4c"
    assert conflicts(area, CommitSelection(None, {"changed": Expected(digest, 0o755)})) == []
    assert conflicts(area, CommitSelection(None, {"changed": Expected(digest, 0o644)})) == [
        "changed"
    ]
    assert conflicts(area, CommitSelection(None, {"gone": Expected(None, None)})) == []
    area.put("changed", "other\n", 0o755)
    assert conflicts(area, CommitSelection(None, {"changed": Expected(digest, 0o755)})) == [
        "changed"
    ]


def test_hostile_entries_are_refused_by_name(area: Area) -> None:
    outside = area.top / "outside"
    outside.write_text("secret")
    (area.upper / "out").symlink_to("../outside")
    os.mkfifo(area.upper / "fifo")
    os.mknod(area.upper / "device", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    area.put("suid", "x", 0o4755)
    area.put("hard", "x")
    os.link(area.upper / "hard", area.upper / "hard2")
    area.put("marked", "x")
    os.setxattr(area.upper / "marked", "user.note", b"x")
    area.put("a\nb", "x")
    (area.upper / os.fsdecode(b"\xff")).write_text("x")
    with (area.upper / "giant").open("wb") as file:
        file.truncate(1 << 40)
    deep = area.upper / "deep"
    for _ in range(200):
        deep.mkdir()
        deep = deep / "d"
    staged = area.opened()
    found = [each for each in walk(staged.upper, staged.lower) if isinstance(each, RefusedEntry)]
    refused = {each.ref: each.reason for each in found}
    assert sorted(ref for ref in refused if "deep" not in ref) == sorted(
        ["out", "fifo", "device", "suid", "hard", "hard2", "marked", "a\\x0ab", "\\xff", "giant"]
    )
    assert sum("deep" in ref for ref in refused) == 1
    prepared = commits.prepare(staged, ALL)
    assert len(prepared.refused) == len(refused)
    with pytest.raises(CommitError):
        commits.commit(staged, ALL, prepared.digest, lambda: None)
    # Others can be committed.
    commit(area, CommitSelection(["changed"], None))
    shown_page = page(staged.upper, staged.lower, records.read(staged.area), "", 1000)
    assert "secret" not in str(shown_page)
    assert shown_page["counts"]["refused"] == len(refused)


def test_pages(area: Area) -> None:
    staged = area.opened()
    whole = page(staged.upper, staged.lower, records.read(staged.area), "", 1000)
    listed, after = [], ""
    while True:
        part = page(staged.upper, staged.lower, records.read(staged.area), after, 3)
        listed += part["items"]
        assert part["counts"] == whole["counts"]
        if not part["more"]:
            break
        after = part["items"][-1]["ref"]
    assert [each["ref"] for each in listed] == [each["ref"] for each in whole["items"]]
    assert [each["ref"] for each in listed] == refs(area)
