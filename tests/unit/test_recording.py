"""Recordings: what is said and typed, however it is split, as lines that players read."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.work.terminals import evidence
from orchestrator.work.terminals.asciicast import Recording, shown_columns
from orchestrator.work.terminals.evidence import Evidence
from orchestrator.work.terminals.evidence_files import EvidenceError, finish_abandoned, hashed

PIECES = st.lists(st.tuples(st.sampled_from("oi"), st.binary(max_size=20)), max_size=20)


@given(PIECES)
def test_bytes_are_the_same_text_however_they_are_split(pieces: list[tuple[str, bytes]]) -> None:
    recording = Recording(80, 24, "dumb")
    lines = recording.header(1).decode()
    for number, (kind, data) in enumerate(pieces):
        add = recording.output if kind == "o" else recording.input
        lines += add(number, data).decode()
    lines += recording.end(len(pieces)).decode()
    header, *events = [json.loads(line) for line in lines.splitlines()]
    assert header["version"] == 2
    for kind in "oi":
        whole = b"".join(data for each, data in pieces if each == kind)
        told = "".join(event[2] for event in events if event[1] == kind)
        assert told == whole.decode("utf-8", "replace")
    assert [event[0] for event in events] == sorted(event[0] for event in events)


def test_the_size_is_one_that_can_be_shown() -> None:
    assert (shown_columns(120), shown_columns(32_767)) == (120, 132)
    recording = Recording(32_767, 24, "dumb")
    assert json.loads(recording.header(1))["width"] == 132
    assert json.loads(recording.resize(1.00004, 99, 30)) == [1.0, "r", "99x30"]


async def test_a_recording_is_bounded_and_typing_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "MOST_RAW_BYTES", 400)
    monkeypatch.setattr(evidence, "MOST_RECORDING_BYTES", 600)
    kept = Evidence(tmp_path / "pty-1", capture=False, recording=Recording(80, 24, "dumb"))
    kept.begin()
    for _ in range(20):
        kept.raw(b"x" * 50)

    def type_much() -> None:
        for _ in range(20):
            kept.typed(b"y" * 10)

    with pytest.raises(EvidenceError, match="full"):
        type_much()
    digests = await kept.finish()
    path = tmp_path / "pty-1" / "recording.cast"
    assert (digests.recording_bytes, digests.recording_hash) == hashed(path)
    assert digests.recording_truncated
    assert digests.recording_bytes <= 600
    kinds = [json.loads(line)[1] for line in path.read_text().splitlines()[1:]]
    assert 0 < kinds.count("o") < 20
    assert 0 < kinds.count("i") < 20


async def test_a_recording_that_was_cut_off_ends_with_its_last_line(tmp_path: Path) -> None:
    kept = Evidence(tmp_path / "pty-1", recording=Recording(80, 24, "dumb"))
    kept.begin()
    kept.raw(b"said")
    await kept.flush()
    kept.release()
    path = tmp_path / "pty-1" / "recording.cast"
    whole = path.read_bytes()
    with path.open("ab") as file:
        file.write(b'[1.5, "o", "' + b"x" * 70_000)
    digests = finish_abandoned(kept.directory, "control_plane_restarted", 0)
    assert path.read_bytes() == whole
    assert digests is not None
    assert (digests.recording_bytes, digests.recording_hash) == hashed(path)
    assert digests.recording_truncated
