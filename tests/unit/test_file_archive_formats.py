"""Any bytes are unpacked beneath a directory or refused, and what is packed can be unpacked."""

import io
import os
import struct
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.redaction import Redactor
from sandbox_agent.files.archives import names
from sandbox_agent.files.archives import tar_headers as tar
from sandbox_agent.files.archives.packing import Packing
from sandbox_agent.files.archives.scan import Scan
from sandbox_agent.files.archives.tally import Tally
from sandbox_agent.files.archives.unpacking import Unpacking
from sandbox_agent.files.file_helper import parse_answer
from sandbox_agent.files.places import Place
from tests.support.archives import Entry, is_loop, tar_of, zip_of

_STEPS = st.sampled_from(["..", ".", "", "a", "b", "d", "ä", "n" * 120])
_PATHS = st.lists(_STEPS, min_size=1, max_size=4).map("/".join)
_KINDS = st.sampled_from(["file", "directory", "symlink", "link"])
_CONTENT = st.binary(max_size=700)
_ENTRIES = st.lists(
    st.builds(Entry, _PATHS, _CONTENT, _KINDS, st.integers(0, 0o7777), _PATHS), max_size=5
)
_FILES = st.builds(lambda name, content: Entry(name, content), _PATHS, _CONTENT)
_FORMS = st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
_MOST = 10_000


def same(text: str) -> str:
    return text


class Ground:
    """A directory `root/in`, and a file beside it that nothing may change."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.place = Place(os.open(root, os.O_PATH | os.O_DIRECTORY))
        (root / "beside").write_bytes(b"canary")

    def unpack(
        self, data: bytes, kind: str = "tar", cuts: tuple[int, ...] = ()
    ) -> AgentError | None:
        """The refusal, if it was refused."""
        unpacking = Unpacking(self.place, "in", kind, _MOST, same)
        edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
        try:
            for start, end in pairwise(edges):
                unpacking.push(data[start:end])
            while not unpacking.finish():
                pass
        except AgentError as error:
            return error
        finally:
            unpacking.close()
        return None

    def pack(self, kind: str) -> bytes:
        tally = Tally(same)
        scan = Scan(self.place, "in", tally)
        packing = Packing(scan, kind)
        try:
            return b"".join(iter(lambda: packing.pull(1000), b""))
        finally:
            os.close(scan.root)

    def shape(self) -> dict[str, object]:
        found: dict[str, object] = {}
        for path in sorted((self.root / "in").rglob("*")):
            name = path.relative_to(self.root / "in").as_posix()
            if path.is_symlink():
                found[name] = os.readlink(path)
            else:
                mode = path.stat().st_mode & 0o7777
                found[name] = (mode, path.read_bytes() if path.is_file() else None)
        return found


@contextmanager
def ground() -> Iterator[Ground]:
    with TemporaryDirectory() as name:
        made = Ground(Path(name))
        try:
            yield made
            assert set(os.listdir(name)) <= {"beside", "in"}
            assert (made.root / "beside").read_bytes() == b"canary"
            root = (made.root / "in").resolve()
            for path in root.rglob("*"):
                assert not path.name.startswith(".paddock")
                if path.is_symlink() and not is_loop(path):
                    target = Path(os.path.realpath(path))
                    assert target.is_relative_to(root), (path, os.readlink(path))
        finally:
            os.close(made.place.directory)


@given(_ENTRIES, _FORMS, st.lists(st.integers(0, 2**20), max_size=4).map(tuple))
def test_any_tar(entries: list[Entry], form: int, cuts: tuple[int, ...]) -> None:
    with ground() as place:
        if (
            place.unpack(tar_of(entries, form), "tar", cuts) is None
            and (place.root / "in").exists()
        ):
            before = place.shape()
            assert place.unpack(place.pack("tar")) is None
            assert place.shape() == before


@given(st.lists(_FILES, max_size=5, unique_by=lambda entry: entry.name))
def test_any_zip(entries: list[Entry]) -> None:
    with ground() as place:
        if place.unpack(zip_of(entries), "zip") is None:
            before = place.shape()
            assert place.unpack(place.pack("zip"), "zip") is None
            assert place.shape() == before


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_only_new_directories_get_their_modes(kind: str) -> None:
    with ground() as place:
        (place.root / "in" / "old").mkdir(parents=True)
        (place.root / "in" / "old").chmod(0o700)
        entries = [Entry(name, kind="directory", mode=0o751) for name in ("old", "new")]
        data = tar_of(entries) if kind == "tar" else zip_of(entries)
        assert place.unpack(data, kind) is None
        modes = {path.name: path.stat().st_mode & 0o777 for path in (place.root / "in").iterdir()}
        assert modes == {"old": 0o700, "new": 0o751}


@given(_ENTRIES, st.data())
def test_a_changed_byte(entries: list[Entry], data: st.DataObject) -> None:
    archive = bytearray(tar_of(entries))
    at = data.draw(st.integers(0, min(len(archive), 4096) - 1))
    archive[at] = data.draw(st.integers(0, 255))
    with ground() as place:
        place.unpack(bytes(archive))


@given(_ENTRIES, st.integers(0, 20_000))
def test_a_cut_tar_is_refused(entries: list[Entry], cut: int) -> None:
    archive = tar_of(entries)
    whole = sum(512 + len(entry.content) + -len(entry.content) % 512 for entry in entries)
    with ground() as place:
        assert place.unpack(archive[: min(cut, whole)]) is not None


@given(st.binary(max_size=3000), st.sampled_from(["tar", "zip"]))
def test_garbage(data: bytes, kind: str) -> None:
    with ground() as place:
        assert place.unpack(data, kind) is not None or not any(data)


@given(st.binary(max_size=300))
def test_any_extended_header(data: bytes) -> None:
    try:
        records = tar.pax_records(data)
    except AgentError:
        return
    assert all(b"=" not in key for key in records)


@example("/")
@example("a/" * 150)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300))
def test_names_of_any_length(name: str) -> None:
    header = tar.Header(tar.SYMBOLIC_LINK, name.encode(), name.encode(), 0, 0o777)
    data = tar.write(header._replace(modified=2**40 * 10**9))
    with tarfile.open(fileobj=io.BytesIO(data + tar.END * 2)) as archive:
        (info,) = archive.getmembers()
    if "\0" not in name:
        # The library strips slashes of long names only.
        assert (info.name.rstrip("/"), info.linkname) == (name.rstrip("/"), name)


@given(st.binary(min_size=1, max_size=40))
def test_any_name_stays_inside_or_is_refused(name: bytes) -> None:
    try:
        path = names.entry_path(name)
    except AgentError:
        return
    parts = path.split("/")
    assert path == "." or not {"", ".", ".."} & set(parts)
    assert not path.startswith("/")


def test_more_bytes_than_the_session_may_have() -> None:
    with ground() as place:
        error = place.unpack(tar_of([Entry("a", bytes(6000)), Entry("b", bytes(6000))]))
        assert error is not None
        assert (error.code, "1 entries with 6000 bytes" in error.message) == ("too_large", True)
        assert os.listdir(place.root / "in") == ["a"]


def test_more_entries_than_an_archive_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox_agent.files.archives.tally.MOST_ENTRIES", 3)
    with ground() as place:
        error = place.unpack(tar_of([Entry(str(number)) for number in range(4)]))
        assert error is not None
        assert "3 entries" in error.message
        assert sorted(os.listdir(place.root / "in")) == ["0", "1", "2"]
        (place.root / "in" / "3").touch()
        with pytest.raises(AgentError, match="3 entries"):
            place.pack("tar")


def test_directories_that_only_paths_name_are_entries_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox_agent.files.archives.tally.MOST_ENTRIES", 4)
    with ground() as place:
        error = place.unpack(tar_of([Entry("a/b/c/d/e/f", b"x")]))
        assert error is not None
        assert "4 entries" in error.message
        assert not any("f" in found for _, _, found in os.walk(place.root / "in"))
        assert place.unpack(tar_of([Entry("a/b/c/f", b"x")])) is None


@pytest.mark.parametrize("far", [False, True])
def test_a_table_of_contents_is_bounded_by_the_end_that_counts(
    far: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second end, of the form for large archives, has the size that is read."""
    whole = zip_of([Entry(str(number)) for number in range(9)])
    at = whole.rindex(b"PK\x05\x06")
    size, start = struct.unpack_from("<II", whole, at + 12)
    if far:
        end = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, 9, 9, size, start)
        locator = struct.pack("<4sIQI", b"PK\6\7", 0, at, 1)
        last = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 9, 9, 1, start, 0)
        whole = whole[:at] + end + locator + last
    with ground() as place:
        assert place.unpack(whole, "zip") is None
    monkeypatch.setattr("sandbox_agent.files.archives.unzip._MOST_CONTENTS", size - 1)
    with ground() as place:
        error = place.unpack(whole, "zip")
        assert (error and error.code) == "too_large"
        assert not (place.root / "in").exists()


@pytest.mark.parametrize("name", ["/{}", "{}/x"])
def test_a_refusal_has_no_secret(name: str) -> None:
    secret = "pa\u200bss-word-0123456789é"
    with ground() as place:
        (place.root / "in").mkdir()
        (place.root / "in" / secret).touch()
        error = place.unpack(tar_of([Entry(name.format(secret), b"x")]))
        assert error is not None
        assert "0123456789" not in Redactor([secret]).text(error.message)


def test_nothing_is_created_before_the_first_good_entry() -> None:
    with ground() as place:
        assert place.unpack(tar_of([Entry("../x", b"x")])) is not None
        assert not (place.root / "in").exists()
        assert place.unpack(tar_of([])) is None
        assert os.listdir(place.root / "in") == []


def test_a_file_that_changes_while_it_is_packed() -> None:
    with ground() as place:
        assert place.unpack(tar_of([Entry("a", bytes(9000)), Entry("b", b"b")])) is None
        for size, refused in ((9500, False), (100, True)):
            packing = Packing(Scan(place.place, "in", Tally(same)), "tar")
            head = packing.pull(512)
            os.truncate(place.root / "in" / "a", size)
            if refused:
                with pytest.raises(AgentError, match="shorter"):
                    packing.pull(10**6)
                continue
            (place.root / "in" / "b").unlink()
            with tarfile.open(fileobj=io.BytesIO(head + packing.pull(10**6))) as archive:
                assert [(info.name, info.size) for info in archive] == [("a", 9000)]


@pytest.mark.parametrize(
    "summary",
    [
        '{"files": -1}',
        '{"files": true}',
        '{"files": 1e3}',
        '{"paths": "x"}',
        '{"paths": [1]}',
        '{"paths_sha256": 5}',
        '{"other": 1}',
        '{"paths": [' + '"x",' * 2000 + '"x"]}',
        '{"skipped_names": ["'
        + "\\u0001" * 1024
        + '"'
        + (', "' + "\\u0001" * 1024 + '"') * 31
        + "]}",
    ],
)
def test_a_summary_that_no_event_could_have(summary: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_answer(b'{"summary": %b}' % summary.encode())
