"""What the last start of the control plane took over, according to its record."""

import json
import sqlite3

from orchestrator.ground.check import Check, ok, warning
from orchestrator.ground.events import SYSTEM_KEY

RECOVERY = "recovery"
_LAST = (
    "SELECT time, body FROM events WHERE session_key = ? AND operation = 'recovery'"
    " ORDER BY seq DESC LIMIT 1"
)
# The longest that a start with 100 sessions should take for them.
_LONG_MS = 5000


def check_recovery(connection: sqlite3.Connection) -> Check | None:
    """Reads the record of the last start; None if there is none. Raises: sqlite3.Error."""
    row = connection.execute(_LAST, (SYSTEM_KEY,)).fetchone()
    if row is None:
        return None
    try:
        return recovery_check(str(row[0]), json.loads(row[1])["result"])
    except (ValueError, LookupError, TypeError):
        remedy = "compare with an export: `paddock audit verify`"
        return warning(RECOVERY, "the record of the last start is malformed", remedy)


def recovery_check(at: str, found: dict[str, int]) -> Check:
    """The check of a start's figures, which are those of its `recovery` event."""
    taken, lost, took = (
        found[name] for name in ("sessions_recovered", "sessions_lost", "recovery_time_ms")
    )
    detail = f"the start at {at} took over {taken} sessions in {took / 1000:.1f} s"
    if lost:
        remedy = "`paddock audit search --operation audit.gap` names what was lost with them"
        return warning(RECOVERY, f"{detail}, and ended {lost} whose sandboxes were gone", remedy)
    if took > _LONG_MS:
        remedy = "look in the log for a sandbox, an engine or a disk that did not answer"
        return warning(RECOVERY, detail, remedy)
    return ok(RECOVERY, detail)
