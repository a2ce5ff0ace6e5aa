"""Terminals as they are stored: rows of any age can be read, and are stored again unchanged."""

import json

import pytest

from api.views.terminals import terminal
from orchestrator.work.terminals.terminal import Status
from orchestrator.work.terminals.terminal_record import TerminalRecord

OPENED = (
    '{"id": "pty-1", "tool": "fake", "manifest_sha256": "00", "startup_command": "fake -x",'
    ' "status": "spawning", "session_state": null, "prompt": null, "interaction_count": 0,'
    ' "max_interactions": 9, "opened_at": "2026-03-04T09:30:12.482113Z", "ended_at": null,'
    ' "reason": null, "exit_code": null, "evidence": null, "kind": "tool"}'
)
ENDED = (
    '{"id": "pty-1", "tool": "fake", "manifest_sha256": "00", "startup_command": "fake -x",'
    ' "status": "terminated", "session_state": "ready", "prompt": "tool=>",'
    ' "interaction_count": 2, "max_interactions": 9,'
    ' "opened_at": "2026-03-04T09:30:12.482113Z", "ended_at": "2026-03-04T09:31:12.482113Z",'
    ' "reason": "closed", "exit_code": 143, "evidence": {"raw_bytes": 7, "raw_hash": "sha256:01",'
    ' "raw_truncated": false, "transcript_bytes": 9, "transcript_hash": "sha256:02",'
    ' "recording_bytes": 5, "recording_hash": "sha256:03", "recording_truncated": false},'
    ' "kind": "shell"}'
)
# Before there were recordings and shells.
EARLIER = ENDED.replace(
    ', "recording_bytes": 5, "recording_hash": "sha256:03", "recording_truncated": false', ""
).replace(', "kind": "shell"', "")


@pytest.mark.parametrize("row", [OPENED, ENDED])
def test_a_row_is_read_and_written_as_it_was(row: str) -> None:
    record = TerminalRecord.restored(json.loads(row))
    assert isinstance(record.status, Status)
    assert json.dumps(record.stored()) == row
    assert terminal(record).raw == json.loads(row)


def test_an_earlier_row_is_read() -> None:
    assert "recording" not in EARLIER
    record = TerminalRecord.restored(json.loads(EARLIER))
    assert record.kind == "tool"
    assert record.evidence is not None
    assert (record.evidence.recording_bytes, record.evidence.recording_hash) == (0, None)
    assert terminal(record).kind == "tool"
