"""Ways out of a directory through the entries of an archive.

The tests check effects: nothing appears or changes outside the directory, whatever is refused.
"""

import gzip
import os
import struct
import tarfile
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from orchestrator.ground.errors import (
    PaddockError,
    PermissionDeniedError,
    TooLargeError,
    ValidationError,
)
from tests.support.archives import Entry, tar_of, zip_of
from tests.support.attempts import attempt
from tests.support.box import TESTER, Box

pytestmark = pytest.mark.asyncio(loop_scope="module")

GOOD = Entry("good", b"good")
# Each is the second entry of an archive that is unpacked into `in`.
OUTWARD = {
    "absolute path": Entry("/workspace/evil", b"x"),
    "absolute path to /tmp": Entry("/tmp/evil", b"x"),
    "..": Entry("../evil", b"x"),
    ".. in the middle": Entry("a/../../evil", b"x"),
    "directory ..": Entry("../evil", kind="directory"),
    "link up": Entry("evil", kind="symlink", target="../outside/file"),
    "link through a link": Entry("evil", kind="symlink", target="a/../../outside"),
    "hard link up": Entry("evil", kind="link", target="../outside/file"),
    "absolute hard link": Entry("evil", kind="link", target="/etc/hostname"),
}
MALFORMED = {
    "FIFO": Entry("evil", kind="fifo"),
    "character device": Entry("evil", kind="device"),
    "block device": Entry("evil", kind="block"),
    "sparse file": Entry("evil", kind="sparse"),
    "unknown type": Entry("evil", kind="unknown"),
    "long name": Entry("e" * 256, b"x"),
    "long path": Entry("/".join(["evil" * 10] * 200), b"x"),
    "very deep path": Entry("evil/" * 300 + "x", b"x"),
    "link to nothing": Entry("evil", kind="symlink", target=""),
}


@pytest_asyncio.fixture(loop_scope="module")
async def box(low: Box) -> AsyncIterator[Box]:
    """A session with a file beside the directory; nothing beside it may change."""
    await low.write("outside/file", b"canary", parents=True)
    await low.mkdir("in")
    (low.workspace / "in" / "link").unlink(missing_ok=True)
    before = set(os.listdir(low.workspace))
    yield low
    assert set(os.listdir(low.workspace)) == before
    assert (low.workspace / "outside" / "file").read_bytes() == b"canary"
    assert os.listdir(low.workspace / "outside") == ["file"]


async def refused(box: Box, data: bytes, kind: str = "tar") -> PaddockError:
    """The refusal of an archive; it is recorded with what was written before."""
    seen = len(await box.events("file.unpack"))
    with pytest.raises(PaddockError) as caught:
        await box.unpack(data, "in", kind)
    events = (await box.events("file.unpack"))[seen:]
    assert len(events) == 1
    assert events[0]["error"] == str(caught.value)
    denied = isinstance(caught.value, PermissionDeniedError)
    assert events[0]["decision"] == ("deny" if denied else "allow")
    assert not list((box.workspace / "in").glob(".paddock*"))
    assert not os.path.lexists(box.workspace / "in" / "evil")
    return caught.value


@attempt("an archive's entry that leads out", layer="agent", levels="low")
@pytest.mark.parametrize("name", OUTWARD)
@pytest.mark.parametrize("kind", ["tar", "zip"])
async def test_an_entry_that_leads_out(box: Box, name: str, kind: str) -> None:
    entry = OUTWARD[name]
    if kind == "zip" and entry.kind == "link":
        return  # a zip archive has none
    data = (tar_of if kind == "tar" else zip_of)([GOOD, entry])
    error = await refused(box, data, kind)
    assert isinstance(error, PermissionDeniedError)
    assert error.fields["rule"] == "path-outside-workspace"
    assert "evil" in error.detail or ".." in error.detail or "hostname" in error.detail
    assert "1 entries with 4 bytes were written before" in error.detail
    assert (box.workspace / "in" / "good").read_bytes() == b"good"


@attempt("an archive's link with an absolute target", layer="agent", levels="low")
@pytest.mark.parametrize("kind", ["tar", "zip"])
@pytest.mark.parametrize("target", ["/etc/hostname", "/workspace/outside", "/"])
async def test_an_absolute_link_is_left_out(box: Box, kind: str, target: str) -> None:
    """What goes through it goes into a directory of that name instead."""
    entries = [Entry("evil", kind="symlink", target=target), Entry("evil/file", b"mine")]
    written = await box.unpack((tar_of if kind == "tar" else zip_of)(entries), "in", kind)
    assert (written.links, written.skipped, written.skipped_names) == (0, 1, ("evil",))
    made = box.workspace / "in" / "evil"
    assert not made.is_symlink()
    assert (made / "file").read_bytes() == b"mine"
    (made / "file").unlink()
    made.rmdir()


@attempt(
    "an archive's entry that is no file, or has a name that is none", layer="agent", levels="low"
)
@pytest.mark.parametrize("name", MALFORMED)
async def test_an_entry_that_can_not_be(box: Box, name: str) -> None:
    error = await refused(box, tar_of([GOOD, MALFORMED[name]]))
    assert isinstance(error, ValidationError | PermissionDeniedError)
    assert "e" * 4 in error.detail or "evil" in error.detail


@pytest.mark.parametrize("kind", ["fifo", "device", "block", "socket"])
async def test_a_zip_entry_that_is_no_file(box: Box, kind: str) -> None:
    error = await refused(box, zip_of([GOOD, Entry("evil", kind=kind)]), "zip")
    assert "'evil' is neither a file" in error.detail


@attempt("an archive that writes through a link", layer="agent", levels="low")
@pytest.mark.parametrize("target", ["../outside", "/workspace/outside", "/etc", "."])
async def test_links_in_the_way_are_not_followed(box: Box, target: str) -> None:
    """The link was there before, as a command may have made it."""
    (box.workspace / "in" / "link").symlink_to(target)
    for entry in (
        Entry("link/file", b"evil"),
        Entry("link/new/file", b"evil"),
        Entry("link/new", kind="directory"),
        Entry("link/evil", kind="symlink", target="x"),
        Entry("hard", kind="link", target="link/file"),
    ):
        await refused(box, tar_of([entry]))
    # A link at the entry's own place is replaced.
    await box.unpack(tar_of([Entry("link", b"mine")]), "in")
    assert not (box.workspace / "in" / "link").is_symlink()


@attempt("an archive that makes a link and writes through it", layer="agent", levels="low")
async def test_links_of_the_archive_are_not_followed(box: Box) -> None:
    chain = [
        Entry("d", kind="directory"),
        Entry("link", kind="symlink", target="d"),
        Entry("link/evil", b"x"),
    ]
    error = await refused(box, tar_of(chain))
    assert "link/evil" in error.detail
    (box.workspace / "in" / "link").unlink()
    error = await refused(box, zip_of(chain), "zip")
    assert "link/evil" in error.detail


async def test_one_name_for_two_things(box: Box) -> None:
    for second in (Entry("a/b", b"x"), Entry("a", kind="directory")):
        error = await refused(box, tar_of([Entry("a", b"x"), second]))
        assert "'a" in error.detail
    for second in (Entry("d", b"x"), Entry("d", kind="symlink", target="x")):
        await refused(box, tar_of([Entry("d", kind="directory"), second]))
        assert (box.workspace / "in" / "d").is_dir()
    # The later one of two files counts.
    await box.unpack(tar_of([Entry("twice", b"1"), Entry("twice", b"2")]), "in")
    assert (box.workspace / "in" / "twice").read_bytes() == b"2"


@attempt("an archive with setuid, setgid and sticky bits", layer="agent", levels="low")
@pytest.mark.parametrize("kind", ["tar", "zip"])
async def test_modes_have_nine_bits(box: Box, kind: str) -> None:
    entries = [Entry("suid", b"x", mode=0o6755), Entry("sticky", kind="directory", mode=0o7777)]
    await box.unpack((tar_of if kind == "tar" else zip_of)(entries), "in", kind)
    assert (box.workspace / "in" / "suid").stat().st_mode & 0o7777 == 0o755
    assert (box.workspace / "in" / "sticky").stat().st_mode & 0o7777 == 0o777


@attempt("a tar archive that is cut, damaged or endless", layer="agent", levels="low")
async def test_damaged_tar(box: Box) -> None:
    data = tar_of([GOOD, Entry("second", b"x" * 5000)])
    for cut in (0, 100, 512, 700, 1024, 3000, len(data) - len(data) % 512 - 10240 + 6000):
        error = await refused(box, data[:cut])
        assert "cut" in error.detail
    flipped = bytearray(data)
    flipped[1024 + 5] ^= 1
    assert "damaged header" in (await refused(box, bytes(flipped))).detail
    assert "goes on" in (await refused(box, data + b"x" * 512)).detail
    assert "does not end" in (await refused(box, data + bytes(3_000_000))).detail
    assert (
        "damaged"
        in (await refused(box, gzip.compress(tar_of([Entry("x", os.urandom(5000))])))).detail
    )
    extended = bytearray(tar_of([Entry("n" * 200, b"x")]))
    size = struct.pack(">B11s", 0x80, (2**60).to_bytes(11, "big"))
    for field, why in ((size, "too long"), (b"\xff" * 12, "damaged"), (b"9" * 12, "damaged")):
        assert why in (await refused(box, with_size(extended, field))).detail
    lying = with_size(tar_of([Entry("evil", b"x")]), size)
    assert "cut" in (await refused(box, lying)).detail


def with_size(data: bytes | bytearray, field: bytes) -> bytes:
    """The archive with another size in its first header, and the right checksum."""
    changed = bytearray(data)
    changed[124:136] = field
    changed[148:156] = b" " * 8
    changed[148:156] = b"%06o\0 " % sum(changed[:512])
    return bytes(changed)


@attempt("a zip archive that is damaged or lies about sizes", layer="agent", levels="low")
async def test_damaged_zip(box: Box) -> None:
    data = zip_of([Entry("evil", b"x" * 5000)], zipfile.ZIP_STORED)
    for broken in (b"", b"PK", data[:-30], data[200:], os.urandom(5000)):
        assert "damaged" in (await refused(box, broken, "zip")).detail
    for size in (b"\0\0\0\0", b"\x10\0\0\0", b"\xff\xff\0\0"):
        at = data.rindex(b"PK\x01\x02") + 24
        await refused(box, data[:at] + size + data[at + 4 :], "zip")
    encrypted = bytearray(data)
    encrypted[encrypted.rindex(b"PK\x01\x02") + 8] |= 1
    assert "encrypted" in (await refused(box, bytes(encrypted), "zip")).detail
    packed = zip_of([Entry("evil", b"x")], zipfile.ZIP_BZIP2)
    assert "deflate" in (await refused(box, packed, "zip")).detail


@attempt(
    "an archive whose content is larger than the workspace may be", layer="agent", levels="low"
)
async def test_bombs(box: Box) -> None:
    entries = [Entry(f"bomb{number}", bytes(100 * 2**20)) for number in range(3)]
    error = await refused(box, zip_of(entries), "zip")
    assert isinstance(error, TooLargeError)

    async def pieces() -> AsyncIterator[bytes]:
        yield from_tar(entries[0])
        for entry in entries[1:]:
            yield from_tar(entry)

    with pytest.raises(TooLargeError):
        await box.plane.file_archives.unpack(TESTER, box.session, "in", "tar", pieces())
    for number in range(3):
        (box.workspace / "in" / f"bomb{number}").unlink(missing_ok=True)


def from_tar(entry: Entry) -> bytes:
    """One entry without the archive's end."""
    return tar_of([entry], tarfile.GNU_FORMAT)[: 512 + len(entry.content)]


@attempt("a race of links against an archive", layer="agent", levels="high")
async def test_a_race_leads_nowhere(high: Box) -> None:
    """A command exchanges a directory and a link while archives are unpacked into it."""
    await high.mkdir("in")
    await high.write("elsewhere/kept", b"kept", parents=True)
    script = (
        "import os, time\nend = time.time() + 8\nos.makedirs('spare', exist_ok=True)\n"
        "while time.time() < end:\n"
        " try: os.rename('in/d', f'spare/{time.time_ns()}')\n except OSError: pass\n"
        " try: os.symlink('../elsewhere', 'in/d'); os.unlink('in/d')\n except OSError: pass\n"
    )
    flipper = await high.start(argv=["python3", "-c", script])
    data = tar_of([Entry(f"d/{number}", b"x") for number in range(50)])
    outcomes = []
    for _ in range(40):
        try:
            await high.unpack(data, "in")
            outcomes.append("done")
        except PaddockError:
            outcomes.append("refused")
    await high.finish(flipper)
    assert os.listdir(high.workspace / "elsewhere") == ["kept"]


@pytest.fixture(scope="module", autouse=True)
def nothing_in_tmp() -> Iterator[None]:
    """The host's own files stay as they are."""
    before = os.path.lexists("/tmp/evil")
    yield
    assert before == os.path.lexists(Path("/tmp/evil"))
