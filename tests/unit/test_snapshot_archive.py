"""The reader of snapshots: it takes what was written, in any pieces, and nothing else."""

import hashlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ground.errors import TooLargeError
from orchestrator.operate.snapshots import archive, helper
from orchestrator.operate.snapshots.archive import (
    END,
    ArchiveReader,
    PartFacts,
    SnapshotError,
    head,
    header,
    padding,
)
from sandbox_agent.decide.errors import AgentError
from tests.support.archives import Entry, tar_of

_TREES = st.one_of(
    st.tuples(st.binary(max_size=1500)),
    st.tuples(st.binary(max_size=600), st.binary(max_size=600), st.binary(max_size=600)),
)


def _written(trees: tuple[bytes, ...]) -> bytes:
    names = archive.FORMS[0] if len(trees) == 1 else archive.FORMS[1]
    parts = [
        PartFacts(name, len(data), hashlib.sha256(data).hexdigest())
        for name, data in zip(names, trees, strict=True)
    ]
    told = head(json.dumps(parts).encode())
    for part, data in zip(parts, trees, strict=True):
        told += header(part.name, part.size) + data + padding(part.size)
    return told + END


def _read(data: bytes, step: int) -> dict[str, bytes]:
    """The parts. Raises: SnapshotError, TooLargeError."""
    found: dict[str, bytearray] = {}

    def listed(manifest: bytes) -> list[PartFacts]:
        return [PartFacts(*part) for part in json.loads(manifest)]

    reader = ArchiveReader(listed, lambda name: found.setdefault(name, bytearray()).extend)
    for at in range(0, len(data), step):
        reader.feed(data[at : at + step])
    reader.finish()
    return {name: bytes(part) for name, part in found.items()}


@given(_TREES, st.integers(1, 2000))
def test_what_was_written_is_read(trees: tuple[bytes, ...], step: int) -> None:
    assert tuple(_read(_written(trees), step).values()) == trees


@given(_TREES, st.data())
def test_any_changed_byte_is_refused(trees: tuple[bytes, ...], data: st.DataObject) -> None:
    whole = bytearray(_written(trees))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises((SnapshotError, TooLargeError)) as refused:
        _read(bytes(whole), 700)
    assert refused.value.fields["field"]


@given(_TREES, st.data())
def test_what_is_cut_or_goes_on_is_refused(trees: tuple[bytes, ...], data: st.DataObject) -> None:
    whole = _written(trees)
    at = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(SnapshotError):
        _read(whole[:at], 512)
    with pytest.raises(SnapshotError):
        _read(whole + b"\0", 512)


@given(st.binary(max_size=3000), st.integers(1, 3000))
def test_any_bytes_are_refused(data: bytes, step: int) -> None:
    with pytest.raises(SnapshotError):
        _read(data, step)


def test_long_parts_are_refused_before_they_arrive() -> None:
    with pytest.raises(SnapshotError, match="at most"):
        _read(header(archive.MANIFEST, archive.MOST_MANIFEST_BYTES + 1), 512)
    for name, size in (
        (archive.WORKSPACE, archive.MOST_BYTES + 1),
        (archive.WORKSPACE, -1),
    ):
        manifest = json.dumps([[name, size, "0" * 64]]).encode()
        with pytest.raises(TooLargeError, match=name):
            _read(head(manifest), 512)
    with pytest.raises(SnapshotError, match="parts must be"):
        _read(head(b"[]"), 512)


def test_an_endless_archive_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_BYTES", 4096)
    reader = ArchiveReader(lambda data: [], lambda name: lambda data: None)
    for _ in range(8):
        reader.feed(header(archive.MANIFEST, 4096)[:512])
    with pytest.raises(TooLargeError):
        reader.feed(b"x")


def test_links_that_no_snapshot_has_are_refused(tmp_path: Path) -> None:
    """An upload leaves them out, but a restored session has all that was there."""
    (tmp_path / "tree").mkdir()
    links = [Entry("ok", b"x"), Entry("evil", kind="symlink", target="/etc/passwd")]
    (tmp_path / "archive").write_bytes(tar_of(links))
    tree = os.open(tmp_path / "tree", os.O_RDONLY | os.O_DIRECTORY)
    archive_file = os.open(tmp_path / "archive", os.O_RDONLY)
    try:
        with pytest.raises(AgentError, match="entry 'evil' is a symbolic link with an absolute"):
            helper._unpack({"tree": tree, "archive": archive_file}, 1000)
    finally:
        os.close(tree)
        os.close(archive_file)
    assert not (tmp_path / "tree" / "evil").is_symlink()
