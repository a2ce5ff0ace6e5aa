"""A command's result, as it is reported and stored."""

from typing import Any


def exit_result(
    reported: dict[str, Any] | None,
    error: str | None,
    rule: str | None,
    duration_ms: int | None,
    seq: int,
    event_hash: str,
) -> dict[str, Any]:
    """A command's result from its exit event; the agent's report is checked."""
    values = reported or {}
    signal_name, reason = values.get("signal"), values.get("reason")
    return {
        "exit_code": _integer(values.get("exit_code")),
        "signal": signal_name if isinstance(signal_name, str) else None,
        "truncated": values.get("truncated") is True,
        "cut_bytes": _integer(values.get("cut_bytes")) or 0,
        "stored_bytes": _integer(values.get("stored_bytes")) or 0,
        "output_bytes": _integer(values.get("output_bytes")) or 0,
        "timed_out": values.get("timed_out") is True,
        "leftover_killed": _integer(values.get("leftover_killed")) or 0,
        "duration_ms": duration_ms or 0,
        "reason": reason if isinstance(reason, str) else None,
        "error": error,
        "rule": rule,
        "evidence": None,
        "audit": {"seq": seq, "hash": event_hash},
    }


def _integer(value: Any) -> int | None:
    # `parse_event` has already limited their size.
    return value if isinstance(value, int) and not isinstance(value, bool) else None
