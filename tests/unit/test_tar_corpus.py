"""Any tree in any form of tar: our readers and writers, Python's, and GNU tar agree."""

import io
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from paddock.client.errors import ConnectionLostError
from paddock.client.local_directory import Directory, walk
from paddock.client.tar_stream import Receiving, Sending
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.files.archives.packing import Packing
from sandbox_agent.files.archives.scan import Scan
from sandbox_agent.files.archives.tally import Tally
from sandbox_agent.files.archives.unpacking import Unpacking
from sandbox_agent.files.places import Place

_MOST = 10**6


class Node(NamedTuple):
    """What is at a path: the content of a file, the target of a link, neither of a directory."""

    content: bytes | None = None
    target: str | None = None
    modified: int = 0


Shape = dict[str, Node]


def _named(lengths: list[int], number: int) -> str:
    """A path whose parts have these lengths, with a first letter that keeps trees apart."""
    return "/".join(chr(97 + number) * length for length in lengths)


# Up to 600 bytes with a slash anywhere.
_LENGTHS = st.lists(st.integers(1, 255), min_size=1, max_size=12).filter(
    lambda lengths: sum(lengths) + len(lengths) - 1 <= 600
)
_MODIFIED = st.integers(-(2**31), 2**33)
_CONTENT = st.one_of(st.just(b""), st.binary(max_size=700))
_TARGETS = st.integers(1, 255).map(lambda length: "t" * length)
_NODES = st.one_of(
    st.builds(Node, _CONTENT, st.none(), _MODIFIED),
    st.builds(Node, st.none(), st.none(), _MODIFIED),
    st.builds(Node, st.none(), _TARGETS, _MODIFIED),
)
_TREES = st.lists(st.tuples(_LENGTHS, _NODES), max_size=6).map(
    lambda found: {_named(lengths, number): node for number, (lengths, node) in enumerate(found)}
)
# Files, empty ones and directories, whose 99th to 101st and 155th to 157th byte is a slash.
_EDGES = {
    _named([at, 9], number): node
    for number, (at, node) in enumerate(
        (at, node)
        for at in (98, 99, 100, 154, 155, 156)
        for node in (Node(b"print(1)\n"), Node(b""), Node())
    )
}


def _made(root: Path, tree: Shape) -> None:
    """Makes the tree on disk."""
    for name, node in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if node.target is not None:
            path.symlink_to(node.target)
        elif node.content is None:
            path.mkdir()
        else:
            path.write_bytes(node.content)
    for name, node in sorted(tree.items(), reverse=True):
        times = (node.modified * 10**9, node.modified * 10**9)
        os.utime(root / name, ns=times, follow_symlinks=False)


def _shape(root: Path, tree: Shape) -> Shape:
    """What of the tree is on disk, and everything else but the directories above."""
    found: Shape = {}
    above = {str(parent) for name in tree for parent in Path(name).parents}
    for path in root.rglob("*"):
        name, status = path.relative_to(root).as_posix(), path.lstat()
        modified = status.st_mtime_ns // 10**9
        if path.is_symlink():
            found[name] = Node(target=os.readlink(path), modified=modified)
        elif path.is_dir():
            if name not in above or name in tree:
                found[name] = Node(modified=modified)
        else:
            found[name] = Node(path.read_bytes(), modified=modified)
    return found


def _agent_read(data: bytes, root: Path) -> None:
    place = Place(os.open(root, os.O_PATH | os.O_DIRECTORY))
    unpacking = Unpacking(place, ".", "tar", _MOST, str)
    try:
        unpacking.push(data)
        unpacking.finish()
    finally:
        unpacking.close()
        os.close(place.directory)


def _client_read(data: bytes, root: Path) -> None:
    receiving = Receiving(Directory(root), _MOST, "it", None)
    try:
        receiving.feed(data)
        receiving.finish()
        assert receiving.skipped == []
    finally:
        receiving.close()


def _python_read(data: bytes, root: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(root, filter="fully_trusted")


def _gnu_read(data: bytes, root: Path) -> None:
    subprocess.run(["tar", "-xf", "-", "-C", root], input=data, check=True, capture_output=True)


def _agent_written(root: Path, _tree: Shape) -> bytes:
    place = Place(os.open(root, os.O_PATH | os.O_DIRECTORY))
    scan = Scan(place, ".", Tally(str))
    packing = Packing(scan, "tar")
    try:
        return b"".join(iter(lambda: packing.pull(1000), b""))
    finally:
        os.close(scan.root)
        os.close(place.directory)


def _client_written(root: Path, _tree: Shape) -> bytes:
    sending = Sending(Directory(root), walk(root), None)
    try:
        return b"".join(iter(sending.next, b""))
    finally:
        sending.close()


def _python_written(form: int) -> Callable[[Path, Shape], bytes]:
    def written(root: Path, tree: Shape) -> bytes:
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w", format=form) as archive:
            for name in tree:
                archive.add(root / name, arcname=name, recursive=False, filter=_whole_seconds)
        return made.getvalue()

    return written


def _whole_seconds(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.mtime = int(info.mtime)
    return info


def _gnu_written(form: str) -> Callable[[Path, Shape], bytes]:
    def written(root: Path, tree: Shape) -> bytes:
        listed = "\0".join(tree).encode()
        command = ["tar", "-cf", "-", f"--format={form}", "--no-recursion", "--null", "-T", "-"]
        return subprocess.run(
            command, cwd=root, input=listed, check=True, capture_output=True
        ).stdout

    return written


READERS = {
    "agent": _agent_read,
    "client": _client_read,
    "Python": _python_read,
    "GNU": _gnu_read,
}
# Each with whether it can write any of the trees.
WRITERS: dict[str, tuple[Callable[[Path, Shape], bytes], bool]] = {
    "agent": (_agent_written, True),
    "client": (_client_written, True),
    "Python, GNU": (_python_written(tarfile.GNU_FORMAT), True),
    "Python, pax": (_python_written(tarfile.PAX_FORMAT), True),
    "Python, ustar": (_python_written(tarfile.USTAR_FORMAT), False),
    "GNU, gnu": (_gnu_written("gnu"), True),
    "GNU, oldgnu": (_gnu_written("oldgnu"), True),
    "GNU, pax": (_gnu_written("pax"), True),
    "GNU, ustar": (_gnu_written("ustar"), False),
    "GNU, v7": (_gnu_written("v7"), False),
}


def _archives(root: Path, tree: Shape) -> Iterator[tuple[str, bytes]]:
    for writer, (write, whole) in WRITERS.items():
        try:
            yield writer, write(root, tree)
        except (ValueError, subprocess.CalledProcessError):
            assert not whole, writer  # long names, and times that the form has not


@pytest.mark.slow
@example(_EDGES)
@given(_TREES)
@settings(max_examples=10)
def test_everyone_reads_what_everyone_writes(tree: Shape) -> None:
    with TemporaryDirectory() as name:
        source = Path(name) / "source"
        source.mkdir()
        _made(source, tree)
        for writer, data in _archives(source, tree):
            for number, (reader, read) in enumerate(READERS.items()):
                if "agent" != reader != "client" and "agent" != writer != "client":
                    continue  # others among themselves
                root = Path(name) / f"{writer} {number}"
                root.mkdir()
                read(data, root)
                told = _without_times_of_links if reader == "Python" else dict
                assert told(_shape(root, tree)) == told(tree), (writer, reader)


def _without_times_of_links(tree: Shape) -> Shape:
    """What Python restores."""
    return {
        name: node._replace(modified=0) if node.target is not None else node
        for name, node in tree.items()
    }


def _read(data: bytes, reader: str = "agent") -> Shape:
    """What a reader makes of an archive. Raises: what the reader does."""
    with TemporaryDirectory() as name:
        READERS[reader](data, Path(name))
        return _shape(Path(name), {})


def _block(name: bytes, kind: bytes, **fields: bytes) -> bytes:
    """A header whose fields are as given."""
    block = bytearray(512)
    told = {"name": name, "kind": kind, "mode": b"0000644\0", "modified": b"00000000001\0"}
    for field, value in (told | fields).items():
        at = _PLACES[field]
        block[at : at + len(value)] = value
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def _sized(size: int) -> bytes:
    return b"%011o\0" % size


def _filled(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def _pax(kind: bytes, text: bytes) -> bytes:
    """An extended header with one record, shorter than 97 bytes."""
    record = b"%d %b\n" % (len(text) + 4, text)
    return _block(b"PaxHeader", kind, size=_sized(len(record))) + _filled(record)


_PLACES = {"name": 0, "mode": 100, "size": 124, "modified": 136, "kind": 156}
END = bytes(1024)


@pytest.mark.parametrize("reader", ["agent", "client"])
@pytest.mark.parametrize("kind", [b"0", b"\0", b"7"])
def test_old_directories_by_the_whole_name(reader: str, kind: bytes) -> None:
    """The oldest form has no type for directories; a long name's beginning is none."""
    assert _read(_block(b"old/", kind) + END, reader)["old"].content is None
    name = b"d" * 99 + b"/module.py"
    long = _block(b"././@LongLink", b"L", size=_sized(len(name) + 1)) + _filled(name + b"\0")
    found = _read(long + _block(name[:100], kind) + END, reader)
    assert found[name.decode()].content == b""


def test_binary_numbers() -> None:
    before = b"\xff" + (-86_400).to_bytes(11, "big", signed=True)
    data = _block(b"file", b"0", size=b"\x80" + (5).to_bytes(11, "big"), modified=before)
    assert _read(data + _filled(b"bytes") + END) == {"file": Node(b"bytes", modified=-86_400)}


@pytest.mark.parametrize(
    "size", [b"\xff" * 12, b"\x80\xff" + bytes(10), b"\xc0" + bytes(11), b"00000000009\0"]
)
def test_sizes_that_can_not_be(size: bytes) -> None:
    with pytest.raises(AgentError, match="damaged"):
        _read(_block(b"file", b"0", size=size) + END)


def test_records_for_all_entries() -> None:
    """A time is taken; a name or size can't be that of each entry; others are remarks."""
    file = _block(b"file", b"0") + END
    assert _read(_pax(b"g", b"mtime=123456.5") + file)["file"].modified == 123_456
    assert _read(_pax(b"g", b"comment=a commit") + file)["file"].modified == 1
    assert _read(_pax(b"g", b"comment=a commit") + END) == {}
    for record in (b"path=x", b"linkpath=x", b"size=1", b"GNU.sparse.realsize=1"):
        with pytest.raises(AgentError, match="for all its entries"):
            _read(_pax(b"g", record) + file)


def test_a_directory_has_no_content() -> None:
    with pytest.raises(AgentError, match="name of a directory and the content of a file"):
        _read(_block(b"d/", b"0", size=_sized(5)) + _filled(b"bytes") + END)


@pytest.mark.parametrize("form", ["gnu", "pax 0.0", "pax 0.1", "pax 1.0"])
def test_sparse_files_are_refused(tmp_path: Path, form: str) -> None:
    (tmp_path / "hole").write_bytes(b"x")
    os.truncate(tmp_path / "hole", 10**6)
    kind, *version = form.split()
    told = [f"--sparse-version={each}" for each in version]
    command = ["tar", "-cf", "-", "-S", f"--format={kind}", *told, "hole"]
    data = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True).stdout
    with pytest.raises(AgentError, match="entry 'hole' is a sparse file"):
        _read(data)
    with pytest.raises(ConnectionLostError, match="damaged"):
        _read(data, "client")


def test_archives_of_several_volumes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(os.urandom(40_000))
    names = [str(tmp_path / f"volume{number}") for number in range(4)]
    volumes = [part for name in names for part in ("-f", name)]
    command = ["tar", "-c", "-M", "-L", "20", "-b", "1", *volumes, "long"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    with pytest.raises(AgentError, match="the archive is cut"):
        _read(Path(names[0]).read_bytes())
    with pytest.raises(AgentError, match="entry 'long' is part of a file on another volume"):
        _read(Path(names[1]).read_bytes())


def test_fractions_of_times() -> None:
    """They are rounded down, as the kernel does."""
    for text, seconds in ((b"-100.25", -101), (b"1000.99", 1000), (b"1234567.8", 1_234_567)):
        data = _pax(b"x", b"mtime=" + text) + _block(b"file", b"0") + END
        assert _read(data)["file"].modified == seconds, text
    with pytest.raises(AgentError, match="modification time that is no number"):
        _read(_pax(b"x", b"mtime=today") + _block(b"file", b"0") + END)


def test_a_refused_archive_leaves_whole_entries(tmp_path: Path) -> None:
    """What precedes the refused entry is there, directories with their modes and times."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, kind, mode in (("d", tarfile.DIRTYPE, 0o750), ("d/f", tarfile.REGTYPE, 0o640)):
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.mtime = kind, mode, 1_000_000_000
            archive.addfile(info)
        archive.addfile(tarfile.TarInfo("../out"))
    with pytest.raises(AgentError) as refused:
        _agent_read(made.getvalue(), tmp_path)
    assert "2 entries with 0 bytes were written before, the last of them entry 'd/f'" in str(
        refused.value.message
    )
    for name, mode in (("d", 0o40750), ("d/f", 0o100640)):
        status = (tmp_path / name).stat()
        assert (status.st_mode, status.st_mtime) == (mode, 1_000_000_000), name
