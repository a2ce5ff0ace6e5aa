"""The signature of messages that a control plane posts."""

import hashlib
import hmac


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """`v1=` and the hex HMAC-SHA256, under the secret, of the timestamp, a full stop and the body.

    `timestamp` is in seconds since 1970.
    """
    digest = hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"v1={digest}"
