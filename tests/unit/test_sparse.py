"""Sparse files packed into a stream: all of them come back, and nothing malformed is accepted."""

import io
import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.operate.backups.sparse_file import PackedFile, unpack

BLOCK = 4096
LARGE = 1024 * BLOCK * BLOCK


@given(
    pieces=st.lists(st.tuples(st.integers(0, 200), st.binary(min_size=1, max_size=9000))),
    length=st.integers(0, 300 * BLOCK),
    sizes=st.integers(1, 100_000),
)
def test_a_file_is_the_same_afterwards(
    tmp_path_factory: pytest.TempPathFactory,
    pieces: list[tuple[int, bytes]],
    length: int,
    sizes: int,
) -> None:
    with (tmp_path_factory.getbasetemp() / "sparse").open("w+b") as file:
        for place, data in pieces:
            file.seek(place * BLOCK)
            file.write(data)
        file.truncate(length)
        file.flush()
        packed = PackedFile(file)
        stream = b"".join(iter(lambda: packed.read(sizes), b""))
        assert len(stream) == packed.size
        file.seek(0)
        again = io.BytesIO()
        unpack(io.BytesIO(stream), again)
        data = again.getvalue()
        assert data.ljust(length, b"\0") == file.read()


def test_holes_stay_holes(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with source.open("wb") as file:
        file.seek(LARGE // 2)
        file.write(b"x")
        file.truncate(LARGE)
    with source.open("rb") as file, target.open("wb") as written:
        packed = PackedFile(file)
        assert packed.size < 100 * BLOCK
        unpack(packed, written)
    assert target.stat().st_size == LARGE
    assert target.stat().st_blocks * 512 < 100 * BLOCK
    with target.open("rb") as file:
        assert os.pread(file.fileno(), 3, LARGE // 2 - 1) == b"\0x\0"


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (b"", "end of a sparse file"),
        (struct.pack(">QQ", 0, 10) + b"short", "end of a sparse file"),
        (struct.pack(">QQ", 8, 1) + b"x" + struct.pack(">QQ", 4, 0), "out of order"),
        (struct.pack(">QQ", 0, 0) + b"more", "after its end"),
    ],
)
def test_what_is_malformed_is_refused(tmp_path: Path, stream: bytes, message: str) -> None:
    with (tmp_path / "file").open("wb") as file, pytest.raises(ValueError, match=message):
        unpack(io.BytesIO(stream), file)
