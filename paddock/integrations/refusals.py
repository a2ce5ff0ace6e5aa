"""Errors of the client, as texts for a model or a person."""

from paddock.client.errors import PaddockAPIError, PaddockError
from paddock.contract.remedies import REMEDIES

# As a shell says that a command may not be run, and as `timeout` says that one took too long.
REFUSED_STATUS = 126
TIMEOUT_STATUS = 124


def explained(error: PaddockError) -> str:
    """What happened, which rule refused, and what to do instead."""
    if not isinstance(error, PaddockAPIError) or error.rule is None:
        return str(error)
    remedy = REMEDIES.get(error.rule)
    said = f"{error.detail} (rule: {error.rule})"
    return said if remedy is None else f"{said}. {remedy}"


def timed_out(seconds: float | None) -> str:
    """The text for a command that was ended by its time-out; None: its level's."""
    limit = "its level's limit" if seconds is None else f"{seconds:g} s"
    return f"the command did not end within {limit}, and was ended"
