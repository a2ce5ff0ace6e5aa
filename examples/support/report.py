"""Formats audit events and limits as rows of a table."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

Event = Mapping[str, Any]

AUDIT_HEADER = ("seq", "time", "source", "operation", "decision", "rule", "summary")
LIMITS_HEADER = ("session", "level", "network", "cpus", "memory", "processes")
# A run of these becomes one row, because an upload would fill pages.
_BULK = {"file.write", "file.mkdir"}


def audit_rows(events: Sequence[Event]) -> Iterator[tuple[str, ...]]:
    """One row for each event, and one for each run of file writes."""
    for _, run in groupby(events, key=_run_of):
        group = list(run)
        first, last = group[0], group[-1]
        seq = str(first["seq"]) if first is last else f"{first['seq']}-{last['seq']}"
        summary = _summary(first) if first is last else _bulk_summary(group)
        yield (
            seq,
            first["time"][11:19],
            first["source"],
            first["operation"],
            first["decision"] or "",
            first["rule"] or "",
            summary,
        )


def limits_row(view: Mapping[str, Any]) -> tuple[str, ...]:
    """A session's network and limits, as the engine reports them for its container."""
    sandbox = view["sandbox"]
    limits = sandbox["limits"]
    return (
        view["id"],
        view["permission_level"],
        sandbox["network"],
        f"{limits['cpus']:g}",
        size(limits["memory_bytes"]),
        str(limits["pids"]),
    )


def total(files: Mapping[str, bytes]) -> str:
    """The number of files and their total size."""
    return f"{len(files)} files, {size(sum(map(len, files.values())))}"


def size(count: float) -> str:
    """A short form of a number of bytes."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} GiB"


def _run_of(event: Event) -> Any:
    bulk = event["operation"] in _BULK and event["error"] is None
    return (event["operation"], event["decision"]) if bulk else event["seq"]


def _bulk_summary(events: Sequence[Event]) -> str:
    if events[0]["operation"] == "file.mkdir":
        return f"{len(events)} directories"
    written = sum(event["result"]["bytes"] for event in events)
    return f"{len(events)} files, {size(written)}"


def _summary(event: Event) -> str:
    args, result = event["args"], event["result"] or {}
    match event["operation"]:
        case "command.start" | "command.exec":
            return " ".join(args["argv"])
        case "command.exit" if result:
            took = event["duration_ms"] / 1000
            return f"exit {result['exit_code']}, {took:.2f} s, {size(result['output_bytes'])} out"
        case "session.create":
            return str(args["image"])
        case "file.read" | "file.write" if result:
            return f"{args['path']}, {size(result['bytes'])}"
    return str(event["error"] or json.dumps(args, ensure_ascii=False))
