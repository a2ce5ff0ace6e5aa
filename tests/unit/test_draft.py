"""Files without a name, also where the file system has none that begin so."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_agent.decide.files import ranges
from sandbox_agent.files.draft import Draft
from sandbox_agent.files.journal import Journal, Step
from sandbox_agent.files.places import Place, Places, open_in
from sandbox_agent.files.writing import Writer


@pytest.fixture(params=["unnamed", "copied"])
def draft(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Draft]:
    """Makes drafts in the directory, as a usual file system does and as an old overlay."""
    if request.param == "copied":
        without_unnamed(monkeypatch)
    place = Place(os.open(tmp_path, os.O_PATH | os.O_DIRECTORY))
    return lambda: Draft(place)


def without_unnamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file begins without a name."""

    def named_only(place: Place, path: str, flags: int, mode: int = 0) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return open_in(place, path, flags, mode)

    monkeypatch.setattr("sandbox_agent.files.draft.open_in", named_only)


def test_it_appears_as_a_whole_with_its_mode_and_time(
    draft: Callable[[], Draft], tmp_path: Path
) -> None:
    made, directory = draft(), os.open(tmp_path, os.O_PATH)
    made.write(b"one, ")
    made.write(b"two" * 100_000)
    os.fchmod(made.fd, 0o640)
    os.utime(made.fd, (5, 6))
    assert os.listdir(tmp_path) == []
    made.link(directory, "file")
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"one, " + b"two" * 100_000
    found = (tmp_path / "file").stat()
    assert (found.st_mode & 0o777, found.st_mtime, found.st_nlink) == (0o640, 6, 1)
    # Its descriptor is that of the file which has the name.
    assert os.fstat(made.fd) == found


def test_what_has_the_name_stays_and_nothing_else_is_left(
    draft: Callable[[], Draft], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("old")
    made = draft()
    made.write(b"new")
    with pytest.raises(FileExistsError):
        made.link(os.open(tmp_path, os.O_PATH), "file")
    assert (os.listdir(tmp_path), (tmp_path / "file").read_text()) == (["file"], "old")


def test_a_directory_that_is_gone(draft: Callable[[], Draft], tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    directory = os.open(tmp_path / "gone", os.O_PATH)
    (tmp_path / "gone").rmdir()
    with pytest.raises(FileNotFoundError):
        draft().link(directory, "file")
    assert os.listdir(tmp_path) == []


def test_a_file_is_replaced_in_one_step_and_its_version_is_that_of_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_unnamed(monkeypatch)
    (tmp_path / "file").write_text("old")
    writer = Writer(Place(os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)), "file")
    writer.push(b"new")
    writer.commit()
    assert (os.listdir(tmp_path), (tmp_path / "file").read_text()) == (["file"], "new")
    assert writer.version == ranges.version((tmp_path / "file").stat())


def test_files_change_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_unnamed(monkeypatch)
    places = Places(str(tmp_path), anywhere=False)
    journal = Journal(places, {}, ["one", "two"])

    def prepare(step: Step) -> None:
        writer = Writer(*places.find(step.path, writes=True))
        writer.push(step.path.encode())
        writer.stage(step.content or "")

    journal.write(prepare)
    for step in journal.steps:
        journal.take(step)
    journal.drop()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "one": "one",
        "two": "two",
    }
