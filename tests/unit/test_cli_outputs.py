"""What `exec --json` keeps of output that arrives in pieces."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddock import StreamedOutput
from paddock.cli.terminal.command_output import Collected
from paddock.client.answers import read

END: Any = type("End", (), {"raw": {"exit_code": 0, "truncated": True, "cut_bytes": 9}})


def told(capsys: pytest.CaptureFixture[str], pieces: list[tuple[str, str, int]]) -> dict[str, Any]:
    collected = Collected("web-1", most=4)
    for stream, text, cut in pieces:
        piece = read(StreamedOutput, {"stream": stream, "offset": 0, "text": text})
        collected.add(piece, cut=cut)
    collected.end(END)
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.text("aé", max_size=9))))
def test_the_first_and_the_last_are_kept_and_the_rest_is_counted(
    capsys: pytest.CaptureFixture[str], pieces: list[tuple[str, str]]
) -> None:
    result = told(capsys, [(stream, text, 0) for stream, text in pieces])
    whole = "".join(text for _, text in pieces)
    cut = len(whole[4:-4].encode()) if len(whole) > 8 else 0
    assert (result["cut_bytes"], result["truncated"]) == (cut, cut > 0)
    marker = f"\n[{cut} bytes of output were cut here]\n"
    kept = [result[name].replace(marker, "") for name in ("stdout", "stderr")]
    assert sum(map(len, kept)) == min(len(whole), 8)
    if not cut:
        for name, text in zip(("stdout", "stderr"), kept, strict=True):
            assert text == "".join(piece for stream, piece in pieces if stream == name)


def test_a_gap_in_what_is_told_counts_with_what_is_not_kept(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pieces = [("stdout", "abcdefé", 0), ("stdout", "gh", 100), ("stderr", "!", 0)]
    result = told(capsys, pieces)
    assert result["cut_bytes"] == 104
    assert result["stdout"] == "abcd\n[104 bytes of output were cut here]\ngh"
    assert result["stderr"] == "!"
