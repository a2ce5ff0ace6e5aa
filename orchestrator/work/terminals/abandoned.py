"""Finishes the evidence of terminals whose control plane was killed."""

import os
import time
from pathlib import Path

from orchestrator.ground.store import directories
from orchestrator.work.terminals import transcript
from orchestrator.work.terminals.evidence import MOST_RAW_BYTES, EvidenceError
from orchestrator.work.terminals.evidence_files import (
    RAW_NAME,
    RECORDING_NAME,
    TRANSCRIPT_NAME,
    Digests,
    hashed,
)

_STEP_BYTES = 64 * 1024


def finish_abandoned(directory: Path, reason: str, interactions: int) -> Digests | None:
    """Finishes files that a killed control plane left; None if there are none.

    Call it in a thread. Raises: EvidenceError.
    """
    raw_path, path = directory / RAW_NAME, directory / TRANSCRIPT_NAME
    recording = directory / RECORDING_NAME
    try:
        fields = transcript.ended(reason, None, interactions)
        text = transcript.line(_age(directory), "CLOSED", fields)
        with path.open("ab") as file:
            file.write(_newline_if_cut(path) + text.encode())
            file.flush()
            os.fsync(file.fileno())
        recorded = recording.exists()
        if recorded:
            _drop_cut_line(recording)
        directories.sync(directory)
        raw_size, raw_hash = hashed(raw_path)
        size, digest = hashed(path)
        recording_size, recording_hash = hashed(recording) if recorded else (0, None)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EvidenceError(f"evidence can't be kept: {error.strerror}") from None
    truncated = raw_size >= MOST_RAW_BYTES
    return Digests(
        *(raw_size, raw_hash, truncated, size, digest),
        *(recording_size, recording_hash, recorded),  # its end is missing
    )


def _age(directory: Path) -> float:
    """Seconds since the directory got its files."""
    return max(0.0, time.time() - directory.stat().st_mtime)


def _newline_if_cut(path: Path) -> bytes:
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return b""
        file.seek(-1, os.SEEK_END)
        return b"" if file.read(1) == b"\n" else b"\n"


def _drop_cut_line(path: Path) -> None:
    """Removes the last line of a recording if it is incomplete: players read whole lines only."""
    with path.open("rb+") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - _STEP_BYTES)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        file.truncate(end)
        os.fsync(file.fileno())
