"""How the applications of a gateway are served."""

from typing import Any

from gateway.open import Gateway
from orchestrator.ground.serving.server_log import ServerLog

# As a node has it: a gateway that takes less would refuse what a node takes.
_MOST_LINE_BYTES = 64 * 1024


def http_options(gateway: Gateway) -> dict[str, Any]:
    """The options with which they must be served."""
    return {
        # Bodies are passed on as sent.
        "auto_decompress": False,
        "max_line_size": _MOST_LINE_BYTES,
        # A position over many nodes is a header, too.
        "max_field_size": _MOST_LINE_BYTES,
        "logger": ServerLog(gateway.metrics.not_http),
    }
