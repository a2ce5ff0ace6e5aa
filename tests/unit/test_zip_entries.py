"""Names and times of zip archives, as macOS, Windows, Info-ZIP and we write them."""

import os
import struct
import zipfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.decide.errors import AgentError
from sandbox_agent.files.archives import zip_entries
from sandbox_agent.files.archives.packing import Packing
from sandbox_agent.files.archives.scan import Scan
from sandbox_agent.files.archives.tally import Tally
from sandbox_agent.files.archives.unpacking import Unpacking
from sandbox_agent.files.places import Place
from tests.support.archives import Entry, tar_of, zip_of

UTF8 = 0x800
NAME = "Übersicht.txt"
RAW = NAME.encode()
# 1980-01-01 in the format's own form.
_DATE = 33


def archive(raw: bytes, flag: int = 0, extra: bytes = b"", system: int = 3) -> bytes:
    """An archive of one file with that name, whose content is `x`."""
    crc, size = zlib.crc32(b"x"), len(raw)
    sizes = struct.pack("<IIIHH", crc, 1, 1, size, len(extra))
    local = struct.pack("<4sHHHHH", b"PK\3\4", 20, flag, 0, 0, _DATE) + sizes + raw + extra + b"x"
    made_by = 20 | system << 8
    central = struct.pack("<4sHHHHHH", b"PK\1\2", made_by, 20, flag, 0, 0, _DATE) + sizes
    central += struct.pack("<HHHII", 0, 0, 0, 0o100644 << 16, 0) + raw + extra
    end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 1, 1, len(central), len(local), 0)
    return local + central + end


def field(kind: int, data: bytes) -> bytes:
    return struct.pack("<HH", kind, len(data)) + data


def unicode_path(name: bytes, of: bytes) -> bytes:
    return field(0x7075, struct.pack("<BI", 1, zlib.crc32(of)) + name)


def unpack(data: bytes, root: Path, kind: str = "zip") -> Unpacking:
    place = Place(os.open(root, os.O_PATH | os.O_DIRECTORY))
    unpacking = Unpacking(place, ".", kind, 10_000, str)
    try:
        unpacking.push(data)
        unpacking.finish()
    finally:
        unpacking.close()
        os.close(place.directory)
    return unpacking


def pack(root: Path, kind: str) -> bytes:
    place = Place(os.open(root, os.O_PATH | os.O_DIRECTORY))
    scan = Scan(place, ".", Tally(str))
    packing = Packing(scan, kind)
    try:
        return b"".join(iter(lambda: packing.pull(1000), b""))
    finally:
        os.close(scan.root)
        os.close(place.directory)


def files(root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("data", "name"),
    [
        pytest.param(archive(RAW, UTF8), NAME, id="the flag"),
        pytest.param(archive(RAW), NAME, id="UTF-8 without the flag"),
        pytest.param(archive(NAME.encode("cp437")), NAME, id="code page 437"),
        pytest.param(archive(b"x.txt", 0, unicode_path(RAW, b"x.txt")), NAME, id="Unicode path"),
        pytest.param(
            archive(b"renamed.txt", 0, unicode_path(RAW, b"x.txt")), "renamed.txt", id="stale"
        ),
        pytest.param(archive(b"src\\main.py"), "src/main.py", id="backslashes"),
        pytest.param(archive(b"src\\main.py", system=0), "src/main.py", id="backslashes of DOS"),
        pytest.param(archive(b"units/a\\x2db"), "units/a\\x2db", id="both separators"),
        pytest.param(
            archive(b"a", 0, unicode_path(b"a\\b", b"a")), "a\\b", id="a backslash in an exact name"
        ),
    ],
)
def test_names(data: bytes, name: str, tmp_path: Path) -> None:
    unpack(data, tmp_path)
    assert files(tmp_path) == [name]


@pytest.mark.parametrize(
    "raw", [b"..\\evil", b"a\\..\\..\\evil", b"..\\evil/x", b"\\evil", b"a/..\\..\\evil"]
)
def test_backslashes_lead_nowhere(raw: bytes, tmp_path: Path) -> None:
    root = tmp_path / "in"
    root.mkdir()
    with pytest.raises(AgentError, match="evil") as refused:
        unpack(archive(raw), root)
    assert refused.value.code == "permission_denied"
    # In an exact name they are characters.
    unpack(archive(b"x", 0, unicode_path(b"..\\evil", b"x")), root)
    assert (os.listdir(tmp_path), os.listdir(root)) == (["in"], ["..\\evil"])


@pytest.mark.parametrize(
    ("extra", "modified"),
    [
        (b"", 315_532_800),
        (field(0x5455, struct.pack("<Bi", 1, 1_000_000_001)), 1_000_000_001),
        (field(0x5455, struct.pack("<Bi", 1, -5)), -5),
        (field(0x5455, struct.pack("<Bi", 2, 77)), 315_532_800),
        (field(0x1, b"") + field(0x5455, struct.pack("<Bi", 1, 9)), 9),
        (field(0x000A, struct.pack("<IHHQQQ", 0, 1, 24, 126_444_736_010_000_000, 0, 0)), 10**9 + 1),
        (field(0x000A, struct.pack("<IHHQQQ", 0, 1, 24, 0, 0, 0)), 315_532_800),
        (b"UT\x50", 315_532_800),
    ],
)
def test_times(extra: bytes, modified: int, tmp_path: Path) -> None:
    unpack(archive(b"old.txt", extra=extra), tmp_path)
    assert (tmp_path / "old.txt").stat().st_mtime == modified


@given(st.binary(max_size=60), st.tuples(*[st.integers(0, 63)] * 5), st.integers(1980, 2107))
def test_any_extra_field_and_date(extra: bytes, date: tuple[int, ...], year: int) -> None:
    info = zipfile.ZipInfo("x")
    info.extra, info.date_time = extra, (year, *date)  # type: ignore[assignment]
    assert isinstance(zip_entries.modified(info), int)
    assert isinstance(zip_entries.name(info), bytes)


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_what_we_pack_keeps_names_and_times(kind: str, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "d").mkdir(parents=True)
    target.mkdir()
    (source / "d" / "a\\b").write_bytes(b"x")
    (source / "c\\d").write_bytes(b"x")
    (source / "link").symlink_to("d")
    times = {"d/a\\b": 1_000_000_001, "c\\d": 2**31 + 9, "d": 999_999_999, "link": 1_234_567_891}
    for name, seconds in times.items():
        os.utime(source / name, (seconds, seconds), follow_symlinks=False)
    unpack(pack(source, kind), target, kind)
    found = {name: int((target / name).lstat().st_mtime) for name in times}
    # The zip format has steps of two seconds after 2038.
    assert found == times | ({"c\\d": 2**31 + 8} if kind == "zip" else {})


@pytest.mark.parametrize("seconds", [-(2**40), 2**39])
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_times_that_a_form_has_not(kind: str, seconds: int, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    os.utime(tmp_path / "file", (seconds, seconds))
    data = pack(tmp_path, kind)
    (tmp_path / "file").unlink()
    unpack(data, tmp_path, kind)
    assert (tmp_path / "file").read_bytes() == b"x"


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_absolute_links_are_left_out_and_named(kind: str, tmp_path: Path) -> None:
    """An environment's interpreter is such a link."""
    entries = [
        Entry(".venv/bin/python", kind="symlink", target="python3"),
        Entry(".venv/bin/python3", kind="symlink", target="/usr/bin/python3"),
        Entry("main.py", b"x"),
    ]
    made = unpack(tar_of(entries) if kind == "tar" else zip_of(entries), tmp_path, kind).members()
    assert (made["skipped"], made["skipped_names"]) == (1, [".venv/bin/python3"])
    assert (made["files"], made["links"]) == (1, 1)
    assert os.listdir(tmp_path / ".venv" / "bin") == ["python"]


def test_endless_left_out_links_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sandbox_agent.files.archives.tally.MOST_ENTRIES", 100)
    links = [Entry(f"l{number}", kind="symlink", target="/x") for number in range(101)]
    with pytest.raises(AgentError, match="may have 100 entries"):
        unpack(tar_of(links), tmp_path, "tar")
    made = unpack(tar_of(links[:100]), tmp_path, "tar").members()
    assert (made["skipped"], len(made["skipped_names"])) == (100, 64)
