"""Messages of syslog: RFC 5424, in the frames of RFC 5425. Pure."""

import re

from orchestrator.operate.exports.destination import ExportedEvent
from orchestrator.operate.exports.ocsf_kinds import Severity

_LOG_AUDIT = 13  # the facility
_SEVERITIES = {
    Severity.INFORMATIONAL: 6,
    Severity.LOW: 5,
    Severity.MEDIUM: 4,
    Severity.HIGH: 3,
}
_MOST_HOST, _MOST_KIND = 255, 32
_NOT_PRINTABLE = re.compile(r"[^!-~]")


def frame(event: ExportedEvent, host: str) -> bytes:
    """The event as one message, with its length before it. `host` names this machine."""
    priority = _LOG_AUDIT * 8 + _SEVERITIES[event.severity]
    kind = _field(event.operation, _MOST_KIND)
    head = f"<{priority}>1 {event.time} {_field(host, _MOST_HOST)} paddock - {kind} - "
    message = head.encode("ascii") + event.text
    return b"%d %s" % (len(message), message)


def _field(text: str, most: int) -> str:
    return _NOT_PRINTABLE.sub("_", text)[:most] or "-"
