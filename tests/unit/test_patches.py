"""Unified diffs: read, applied exactly, and never in more than linear time."""

import difflib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_agent.decide.files import hunks, patches
from sandbox_agent.decide.files.patches import FilePatch, PatchError

LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"\n", b" \n", b"-\n", b"+ x\r\n", b"\\\n"]))


def diff(old: list[bytes], new: list[bytes], context: int = 3) -> str:
    """What difflib makes of two files."""
    made = difflib.diff_bytes(difflib.unified_diff, old, new, b"a/f", b"b/f", n=context)
    return b"".join(made).decode()


@given(LINES, LINES, st.integers(0, 4))
def test_a_difference_makes_the_new_file(old: list[bytes], new: list[bytes], context: int) -> None:
    text = diff(old, new, context)
    if old == new:
        assert text == ""
        return
    (found,) = patches.parse(text)
    made, rejects, searched = hunks.applied(b"".join(old), found.hunks, "f")
    assert (made, rejects, searched) == (b"".join(new), [], 0)


@given(LINES, LINES, st.lists(st.just(b"inserted\n"), min_size=1, max_size=9))
def test_a_hunk_is_found_where_it_stands_now(
    old: list[bytes], new: list[bytes], before: list[bytes]
) -> None:
    """Lines that somebody else has added above move it; they are kept."""
    if old == new or not old:
        return
    (found,) = patches.parse(diff(old, new, len(old) + len(new)))
    made, rejects, _ = hunks.applied(b"".join(before + old), found.hunks, "f")
    assert not rejects
    assert made == b"".join(before + new)


@given(st.text(alphabet='-+ @\\ab/1,0\n\t"', max_size=200))
@settings(max_examples=settings().max_examples * 3)
def test_any_text_is_a_patch_or_an_error(text: str) -> None:
    try:
        found = patches.parse(text)
    except PatchError:
        return
    for each in found:
        assert each.old or each.new
        hunks.applied(b"a\nb\n", each.hunks, each.path)


def test_the_nearest_place_wins() -> None:
    (found,) = patches.parse("--- f\n+++ f\n@@ -5,1 +5,1 @@\n-x\n+y\n")
    content = b"x\n1\n2\n3\n4\n5\nx\nx\n"
    assert hunks.applied(content, found.hunks, "f")[0] == b"x\n1\n2\n3\n4\n5\ny\nx\n"


def test_files_without_a_newline_at_the_end() -> None:
    mark = "\\ No newline at end of file\n"
    text = f"--- f\n+++ f\n@@ -1 +1 @@\n-a\n{mark}+b\n{mark}"
    (found,) = patches.parse(text)
    assert hunks.applied(b"a", found.hunks, "f")[:2] == (b"b", [])
    made, rejects, _ = hunks.applied(b"a\n", found.hunks, "f")
    assert (made, rejects[0].hunk) == (b"a\n", 1)


def test_what_git_says_in_headers() -> None:
    text = (
        "diff --git a/old b/new\nsimilarity index 100%\nrename from old\nrename to new\n"
        "diff --git a/run b/run\nold mode 100644\nnew mode 100755\n"
        "diff --git a/empty b/empty\nnew file mode 100644\nindex 0000000..e69de29\n"
        "diff --git a/gone b/gone\ndeleted file mode 100644\n"
        "diff --git a/one b/two\nsimilarity index 90%\ncopy from one\ncopy to two\n"
        'diff --git "a/\\303\\274 b" "b/\\303\\274 b"\n--- "a/\\303\\274 b"\n+++ "b/\\303\\274 b"\n'
        "@@ -1 +1 @@\n-a\n+b\n"
    )
    found = patches.parse(text)
    assert [each._replace(hunks=()) for each in found] == [
        FilePatch("old", "new"),
        FilePatch("run", "run", mode=0o755),
        FilePatch(None, "empty", mode=0o644),
        FilePatch("gone", None),
        FilePatch("one", "two", copies=True),
        FilePatch("ü b", "ü b"),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it has no file"),
        ("hello\n", "it has no file"),
        ("@@ -1 +1 @@\n-a\n+b\n", "line 1: a hunk without"),
        ("--- f\n+++ f\nhello\n", "line 3: a hunk must follow"),
        ("--- f\n+++ f\n@@ -1,2 +1 @@\n-a\n+b\n", "line 6: the hunk .* ends before"),
        ("--- f\n+++ f\n@@ -1 +1 @@\n-a\nxb\n", "line 5: each line of a hunk"),
        ("--- f\n+++ f\n@@ -2 +1,0 @@\n-a\n-b\n@@ -1 +1 @@\n", "line 7: the hunk|ends before|line"),
        ("--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n", "both names"),
        ("diff --git a/x b/x\nGIT binary patch\n", "binary"),
        ("diff --git a/x b/x\nnew file mode 120000\n", "not a regular file"),
    ],
)
def test_what_is_no_patch(text: str, reason: str) -> None:
    with pytest.raises(PatchError, match=reason):
        patches.parse(text)


def test_gits_patches_make_the_same_files(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_bytes(b"".join(b"line %d\n" % number for number in range(200)))
    lines = old.read_bytes().splitlines(keepends=True)
    lines[3:5] = [b"three\n"]
    lines[150:150] = [b"new\n", b"\n"]
    new.write_bytes(b"".join(lines)[:-1])
    command = ["git", "diff", "--no-index", "--no-color", old.name, new.name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    (found,) = patches.parse(done.stdout.decode())
    assert hunks.applied(old.read_bytes(), found.hunks, "f")[:2] == (new.read_bytes(), [])


def test_a_search_for_moved_hunks_has_a_bound() -> None:
    """Hunks that match almost everywhere, but nowhere, can't take long."""
    hunk = "@@ -1,3 +1,3 @@\n a\n a\n-c\n+d\n"
    (found,) = patches.parse("--- f\n+++ f\n" + hunk * 5000)
    made, rejects, searched = hunks.applied(b"a\n" * 20_000, found.hunks, "f", 1_000_000)
    assert made == b"a\n" * 20_000
    assert len(rejects) == 5000
    assert rejects[-1].reason.endswith("took too long")
    assert searched >= 1_000_000
