"""Git's status is read as git prints it, and nothing else is."""

import contextlib
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.client.git_status import GitChange, GitStatus, parse_status

COMMIT = "a" * 40
PATHS = st.binary(min_size=1, max_size=30).filter(lambda path: b"\0" not in path).map(os.fsdecode)
STATES = st.sampled_from([None, "M", "A", "D", "T"])
CHANGES = st.one_of(
    st.builds(GitChange, PATHS, st.just("changed"), STATES, STATES),
    st.builds(GitChange, PATHS, st.just("renamed"), st.sampled_from("RC"), STATES, PATHS),
    st.builds(GitChange, PATHS, st.just("unmerged"), st.just("U"), st.sampled_from("UAD")),
    st.builds(GitChange, PATHS, st.just("untracked")),
)
NAMES = st.text("abc/-.é", min_size=1)
COUNTS = st.integers(0, 10**17)


def printed(status: GitStatus) -> bytes:
    """What git prints for it."""
    records = [
        f"# branch.oid {status.commit or '(initial)'}",
        f"# branch.head {status.branch or '(detached)'}",
    ]
    if status.upstream is not None:
        records.append(f"# branch.upstream {status.upstream}")
        records.append(f"# branch.ab +{status.ahead} -{status.behind}")
    records += map(_record, status.changes)
    return os.fsencode("".join(f"{record}\0" for record in records))


def _record(change: GitChange) -> str:
    state = (change.staged or ".") + (change.unstaged or ".")
    modes = "N... 100644 100644 100644"
    if change.kind == "untracked":
        return f"? {change.file}"
    if change.kind == "unmerged":
        return f"u {state} {modes} 100644 {COMMIT} {COMMIT} {COMMIT} {change.file}"
    if change.kind == "renamed":
        return f"2 {state} {modes} {COMMIT} {COMMIT} R100 {change.file}\0{change.original}"
    return f"1 {state} {modes} {COMMIT} {COMMIT} {change.file}"


@given(
    st.builds(
        GitStatus,
        st.none() | st.just(COMMIT),
        st.none() | NAMES,
        NAMES,
        COUNTS,
        COUNTS,
        st.lists(CHANGES, max_size=5).map(tuple),
    )
)
def test_what_is_printed_is_what_is_read(status: GitStatus) -> None:
    assert parse_status(printed(status)) == status


@given(st.binary(max_size=200))
def test_other_bytes_are_a_status_or_a_value_error(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        parse_status(data)


@pytest.mark.parametrize(
    "data",
    [
        b"x unknown\0",
        b"? \0",
        b"?\0",
        b"1 M. N... 100644 100644 100644 a b\0",
        b"1 M N... 100644 100644 100644 a b path\0",
        b"2 R. N... 100644 100644 100644 a b R100 path\0",
        b"12 R. N... 100644 100644 100644 a b path\0",
        b"# branch.ab 1 2\0",
        b"# branch.ab +1 -x\0",
        b"# branch.ab +1 -1234567890123456789012345\0",
    ],
)
def test_a_malformed_status_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^a (record|renamed file|distance) "):
        parse_status(data)


def test_the_status_of_a_real_repository(tmp_path: Path) -> None:
    def git(*arguments: str) -> bytes:
        named = ("-c", "user.name=test", "-c", "user.email=test@example.org")
        command = ["git", *named, "-C", str(tmp_path), *arguments]
        return subprocess.run(command, check=True, capture_output=True).stdout

    def status() -> GitStatus:
        return parse_status(git("status", "--porcelain=v2", "--branch", "-z"))

    git("init", "-q", "-b", "main")
    assert status() == GitStatus(branch="main")
    assert status().clean
    (tmp_path / "first name").write_text("a long enough text\n")
    (tmp_path / "second").write_text("two\n")
    git("add", "--all")
    git("commit", "-q", "-m", "both")
    git("mv", "first name", "new name")
    (tmp_path / "second").write_text("three\n")
    (tmp_path / "line\nbreak").write_text("new\n")
    assert status().changes == (
        GitChange("new name", "renamed", "R", None, "first name"),
        GitChange("second", "changed", None, "M"),
        GitChange("line\nbreak", "untracked"),
    )
    assert not status().clean
