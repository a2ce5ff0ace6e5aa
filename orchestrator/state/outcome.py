"""What a command came to."""

from dataclasses import dataclass
from typing import Any, NamedTuple


class KeptEvidence(NamedTuple):
    """The evidence kept of a command; `sha256` is None without any, and `reason` says why.

    `bytes` is its size. `truncated`: the command printed more than was kept. `left`: the file that
    the command wrote could not be removed from the workspace.
    """

    bytes: int
    sha256: str | None
    truncated: bool
    reason: str | None
    left: bool


@dataclass(slots=True)
class CommandExit:
    """A command's end: the agent's report, what is stored of its output, and its event.

    `exit_code` is None if the end is lost. `seq` and `hash` are the event's place in its chain.
    """

    exit_code: int | None = None
    signal: str | None = None
    truncated: bool = False
    cut_bytes: int = 0
    stored_bytes: int = 0
    output_bytes: int = 0
    timed_out: bool = False
    leftover_killed: int = 0
    duration_ms: int = 0
    reason: str | None = None
    error: str | None = None
    rule: str | None = None
    evidence: KeptEvidence | None = None
    seq: int = 0
    hash: str = ""


def exit_of(
    reported: dict[str, Any] | None,
    error: str | None,
    rule: str | None,
    duration_ms: int | None,
    seq: int,
    event_hash: str,
) -> CommandExit:
    """A command's end from its exit event; the agent's report is checked."""
    values = reported or {}
    signal_name, reason = values.get("signal"), values.get("reason")
    return CommandExit(
        exit_code=_integer(values.get("exit_code")),
        signal=signal_name if isinstance(signal_name, str) else None,
        truncated=values.get("truncated") is True,
        cut_bytes=_integer(values.get("cut_bytes")) or 0,
        stored_bytes=_integer(values.get("stored_bytes")) or 0,
        output_bytes=_integer(values.get("output_bytes")) or 0,
        timed_out=values.get("timed_out") is True,
        leftover_killed=_integer(values.get("leftover_killed")) or 0,
        duration_ms=duration_ms or 0,
        reason=reason if isinstance(reason, str) else None,
        error=error,
        rule=rule,
        seq=seq,
        hash=event_hash,
    )


def _integer(value: Any) -> int | None:
    # `parse_event` has already limited their size.
    return value if isinstance(value, int) and not isinstance(value, bool) else None
