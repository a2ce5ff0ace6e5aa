"""Transcripts: their format, and that no line can be forged."""

import asyncio
import hashlib
import os
import re
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.work.terminals import evidence, evidence_files, transcript
from orchestrator.work.terminals.evidence import Evidence
from orchestrator.work.terminals.evidence_files import EvidenceError, finish_abandoned
from tests.support.until import until


def test_the_lines() -> None:
    def line(seconds: float, event: str, fields: list[str]) -> str:
        return transcript.line(seconds, event, fields)

    shown = transcript.shown("appdb=> ", "ready")
    text = "SELECT * FROM users LIMIT 10"
    assert [
        line(0, "STARTUP", transcript.startup("psql -h localhost -U agent_user -d appdb")),
        line(1.25, "READY", [shown]),
        line(1.5, "INPUT", transcript.asked(text, "allow", None, "select_query")),
        line(2.19, "OUTPUT", ["10 rows returned", shown]),
        line(62.3, "INPUT", transcript.asked("DROP TABLE users", "deny", None, "drop_table")),
        line(63, "INPUT", transcript.asked("set RHOSTS", "pending", "OK", "set")),
        line(64, "INPUT", transcript.asked("rm", "deny", None, "")),
        line(6000, "APPROVAL", transcript.approved("ann")),
        line(6000.1, "CLOSED", transcript.ended("exited", None, 3)),
    ] == [
        "[00:00.0] STARTUP  psql -h localhost -U agent_user -d appdb\n",
        '[00:01.2] READY    prompt="appdb=>" state=ready\n',
        f'[00:01.5] INPUT    "{text}"  cedar=ALLOW  pattern=select_query\n',
        '[00:02.1] OUTPUT   10 rows returned  prompt="appdb=>" state=ready\n',
        '[01:02.3] INPUT    "DROP TABLE users"  cedar=DENY  pattern=drop_table\n',
        '[01:03.0] INPUT    "set RHOSTS"  cedar=PENDING_APPROVAL  scope=OK  pattern=set\n',
        '[01:04.0] INPUT    "rm"  cedar=DENY  pattern=-\n',
        "[100:00.0] APPROVAL human=ann  cedar=ALLOW\n",
        "[100:00.1] CLOSED   reason=exited  exit_code=unknown  interactions=3\n",
    ]


@given(st.text())
def test_what_is_quoted_is_on_one_line_and_stays_in_its_quotes(text: str) -> None:
    quoted = transcript.quoted(text)
    assert quoted.isprintable()
    assert re.fullmatch(r'"(?:[^"\\]|\\.)*"', quoted)
    quoted.encode()


async def said(kept: Evidence, data: bytes) -> None:
    kept.raw(data)
    await kept.flush()


async def test_files_are_hashed_as_they_are(tmp_path: Path) -> None:
    kept = Evidence(tmp_path / "evidence" / "key" / "pty-1")
    kept.raw(b"abc")
    kept.raw(b"def")
    kept.note("STARTUP", ["psql"])
    digests = await kept.finish()
    kept.release()
    directory = tmp_path / "evidence" / "key" / "pty-1"
    assert (directory / "raw").read_bytes() == b"abcdef"
    assert digests.raw_hash == "sha256:" + hashlib.sha256(b"abcdef").hexdigest()
    text = (directory / "transcript.log").read_bytes()
    assert text == b"[00:00.0] STARTUP  psql\n"
    assert digests.transcript_hash == "sha256:" + hashlib.sha256(text).hexdigest()
    assert (directory.stat().st_mode & 0o777, digests.raw_truncated) == (0o700, False)


async def test_evidence_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "MOST_RAW_BYTES", 10)
    monkeypatch.setattr(evidence, "MOST_TRANSCRIPT_BYTES", 5000)
    kept = Evidence(tmp_path / "evidence" / "key" / "pty-1")
    kept.raw(b"a" * 100)
    kept.note("INPUT", ["x" * 800])
    with pytest.raises(EvidenceError, match="full"):
        kept.note("INPUT", ["x" * 200])
    kept.note("CLOSED", ["x" * 800], last=True)
    await kept.flush()
    assert (kept.directory / "raw").read_bytes() == b"a" * 10
    kept.release()


def test_evidence_that_can_not_be_kept_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "evidence").write_text("in the way")
    with pytest.raises(EvidenceError, match="evidence can't be kept"):
        Evidence(tmp_path / "evidence" / "key" / "pty-1")
    Evidence(tmp_path / "key" / "pty" / "1").release()
    with pytest.raises(EvidenceError, match="File exists"):
        Evidence(tmp_path / "key" / "pty" / "1")


async def test_a_file_that_was_cut_off_is_ended(tmp_path: Path) -> None:
    kept = Evidence(tmp_path / "evidence" / "key" / "pty-1")
    kept.raw(b"abc")
    kept.note("STARTUP", ["psql"])
    await kept.flush()
    kept.release()
    with (kept.directory / "transcript.log").open("ab") as file:
        file.write(b"[00:00.1] INP")
    digests = finish_abandoned(kept.directory, "control_plane_restarted", 0)
    lines = (kept.directory / "transcript.log").read_text().splitlines()
    assert lines[1] == "[00:00.1] INP"
    assert lines[2].endswith(
        "CLOSED   reason=control_plane_restarted  exit_code=unknown  interactions=0"
    )
    assert digests is not None
    assert digests.raw_bytes == 3
    assert finish_abandoned(tmp_path / "nowhere", "x", 0) is None


def test_a_refused_line_is_its_beginning() -> None:
    refused, *_ = transcript.asked("x" * 4000, "deny", None, "")
    assert refused.endswith(' more bytes]"')
    assert len(refused) < 1100
    allowed, *_ = transcript.asked("x" * 4000, "allow", None, "select_query")
    assert allowed == f'"{"x" * 4000}"'


async def test_evidence_has_the_name_that_the_manifest_gives_it(tmp_path: Path) -> None:
    directory = tmp_path / "evidence" / "key" / "pty-1"
    kept = Evidence(directory, name="{session_id}-psql")
    kept.raw(b"said")
    kept.note("READY", ["at last"])
    await kept.flush()
    kept.release()
    assert (directory.with_name("pty-1-psql") / "raw").read_bytes() == b"said"
    other = Evidence(directory.with_name("pty-2"), name="psql-{session_id}")
    await other.discard()
    names = sorted(path.name for path in directory.parent.iterdir())
    assert names == ["pty-1", "pty-1-psql"]


async def test_without_capture_the_raw_bytes_are_counted_only(tmp_path: Path) -> None:
    kept = Evidence(tmp_path / "evidence" / "key" / "pty-1", capture=False)
    kept.raw(b"said")
    kept.note("READY", ["at last"])
    digests = await kept.finish()
    assert (digests.raw_bytes, digests.raw_truncated) == (0, True)
    assert (kept.directory / "raw").read_bytes() == b""
    assert digests.transcript_bytes > 0


class Disk:
    """A disk that hangs until it answers; `order` contains the writes in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers = threading.Event()
        self.asked = threading.Event()
        write = evidence_files.write

        def hang(pieces: Sequence[tuple[int, bytes]]) -> None:
            self.asked.set()
            self.answers.wait()
            write(pieces)

        monkeypatch.setattr(evidence_files, "write", hang)


async def test_a_disk_that_hangs_keeps_who_writes_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Evidence(tmp_path / "evidence" / "key" / "pty-1")
    disk = Disk(monkeypatch)
    saying = asyncio.create_task(said(kept, b"abc"))
    await asyncio.to_thread(disk.asked.wait)  # the loop is not blocked
    more = asyncio.create_task(said(kept, b"def"))
    await asyncio.sleep(0)
    assert not saying.done()
    assert not more.done()
    disk.answers.set()
    await asyncio.gather(saying, more)
    digests = await kept.finish()
    assert (kept.directory / "raw").read_bytes() == b"abcdef"
    assert digests.raw_bytes == 6


async def test_what_a_disk_does_not_take_in_time_is_lost_and_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "DISK_SECONDS", 0.05)
    kept = Evidence(tmp_path / "evidence" / "key" / "pty-1")
    raw = kept._raw.descriptor
    disk = Disk(monkeypatch)
    for _ in range(2):
        with pytest.raises(EvidenceError, match="does not answer"):
            await said(kept, b"abc")
    with pytest.raises(EvidenceError, match="does not answer"):
        await kept.finish()
    # The descriptor is not reused before the thread has finished.
    os.fstat(raw)
    disk.answers.set()
    assert kept._call_of_disk is not None
    await kept._call_of_disk
    await asyncio.sleep(0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(raw)
    assert (kept.directory / "raw").read_bytes() == b"abc"


async def test_a_write_whose_caller_goes_away_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Evidence(tmp_path / "evidence" / "key" / "pty-1")
    disk = Disk(monkeypatch)
    saying = asyncio.create_task(said(kept, b"abc"))
    await asyncio.to_thread(disk.asked.wait)
    saying.cancel()
    await asyncio.gather(saying, return_exceptions=True)
    disk.answers.set()
    await said(kept, b"def")
    assert (await kept.finish()).raw_bytes == 6
    assert (kept.directory / "raw").read_bytes() == b"abcdef"


async def test_files_that_are_made_too_late_are_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "DISK_SECONDS", 0.05)
    answers = threading.Event()
    made: list[Evidence] = []

    def make() -> Evidence:
        answers.wait()
        made.append(Evidence(tmp_path / "evidence" / "key" / "pty-1"))
        return made[0]

    with pytest.raises(EvidenceError, match="does not answer"):
        await Evidence.open(make, evidence.disk_threads())
    answers.set()
    await until(lambda: bool(made) and made[0]._raw.descriptor == -1)
