"""Why a call of a model failed."""

from enum import StrEnum


class ModelFailure(StrEnum):
    """The kinds of failures."""

    UNKNOWN = "unknown"  # no such model
    REFUSED = "refused"  # the endpoint's status
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    TOO_LARGE = "too_large"
    BROKEN = "broken"  # the answer makes no sense, or breaks off
    KEY = "key"  # its file can't be read


class ModelError(Exception):
    """A call of a model failed; the message is one sentence without the key and the URL."""

    def __init__(self, failure: ModelFailure, message: str) -> None:
        super().__init__(message)
        self.failure = failure
