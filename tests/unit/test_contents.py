"""Contents are compared with their digests, and read again when a file has changed."""

import hashlib
import os
from pathlib import Path

import pytest

from sandbox_agent.enforce.reads import contents
from sandbox_agent.enforce.reads.contents import Contents


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_change_is_seen_whatever_its_size_and_times(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"listed")
    known = Contents({"/workspace/file": digest(b"listed")})
    name = os.fsencode(file)
    assert known.right("/workspace/file", name)
    assert known.right("/workspace/other", name)
    status = file.stat()
    for change in (
        lambda: file.write_bytes(b"LISTED"),
        lambda: (tmp_path / "new").write_bytes(b"LISTED") and (tmp_path / "new").rename(file),
        file.unlink,
    ):
        file.write_bytes(b"listed")
        assert known.right("/workspace/file", name)
        change()
        if file.exists():
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
            assert not known.right("/workspace/file", name)
        else:
            with pytest.raises(FileNotFoundError):
                known.right("/workspace/file", name)


def test_a_file_that_stays_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    real = contents._digest

    def counted(fd: int) -> str:
        read.append(fd)
        return real(fd)

    monkeypatch.setattr(contents, "_digest", counted)
    old, new = Path(__file__), tmp_path / "new"
    new.write_bytes(b"new")
    known = Contents({str(file): digest(file.read_bytes()) for file in (old, new)})
    for file, times in ((old, 1), (new, 3)):  # what has just changed may change within the tick
        read.clear()
        monkeypatch.setattr(contents, "_TICK_NS", 0 if file == old else 2**62)
        assert all(known.right(str(file), os.fsencode(file)) for _ in range(3))
        assert len(read) == times
