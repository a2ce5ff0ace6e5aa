"""What a client may learn about an error; unexpected ones go to the log."""

import logging

from orchestrator.ground.errors import AuditUnavailableError, PaddockError, ValidationError
from orchestrator.ground.store.database_file import StoreError

log = logging.getLogger(__name__)

_INTERNAL = "something failed inside the control plane; its log has the request id"


def failed(error: Exception) -> PaddockError:
    """The error that a client gets; unexpected errors are logged with a traceback."""
    if isinstance(error, PaddockError):
        return error
    if isinstance(error, ConnectionError):
        return ValidationError("the body did not arrive whole")
    if isinstance(error, StoreError):
        log.error("the store failed: %s", error)
        return AuditUnavailableError("the audit store can't be read")
    log.error("a request failed", exc_info=error)
    return PaddockError(_INTERNAL)
