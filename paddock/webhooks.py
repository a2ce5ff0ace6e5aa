"""For receivers of hooks: whether a message is the control plane's."""

import hmac
import re
import time

from paddock.contract.signatures import signature

# Seconds between the clocks of sender and receiver, the message's journey included.
TOLERANCE = 300
_TIMESTAMP = re.compile(r"[0-9]{1,12}", re.ASCII)


def verify(
    secret: str,
    timestamp: str | None,
    signed: str | None,
    body: bytes,
    *,
    tolerance: float = TOLERANCE,
    now: float | None = None,
) -> bool:
    """Whether a message was signed with the secret, at most `tolerance` seconds ago.

    The comparison takes the same time for every signature. Each attempt to deliver a message is
    signed anew, so an old one is a repetition by somebody else.

    Args:
        secret: the hook's.
        timestamp: the header `Paddock-Timestamp`; None if it is missing.
        signed: the header `Paddock-Signature`; None if it is missing.
        body: the request's body as it arrived, before it is parsed.
        now: seconds since 1970; None: the present time.
    """
    if timestamp is None or signed is None or not _TIMESTAMP.fullmatch(timestamp):
        return False
    expected = signature(secret.encode(), timestamp, body)
    if not hmac.compare_digest(expected.encode(), signed.encode("utf-8", "replace")):
        return False
    return abs((time.time() if now is None else now) - int(timestamp)) <= tolerance
