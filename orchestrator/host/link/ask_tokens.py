"""Who asked an agent for what it reports: named in its requests, and found in its events.

An agent returns a token that it can't make. A compromised one could return an earlier one of its
own sandbox, so it names nobody but a caller that has asked it for something.
"""

import base64
import binascii
import hmac
import json
import secrets
from typing import NamedTuple

# Of a request's parameters, and of an event's arguments.
ASKER = "asker"
_MAC_BYTES = 16
_MOST = 2048


class AskedBy(NamedTuple):
    """A caller, and the name of its request in a foreign protocol if it has one."""

    actor: str
    asked_as: str | None


class AskTokens:
    """Makes and reads tokens, which are valid as long as this process runs."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def token(self, session_key: str, asker: AskedBy) -> str:
        """The caller's token in requests to that session's agent."""
        said = json.dumps(asker).encode()
        return base64.b64encode(self._mac(session_key, said) + said).decode()

    def read(self, session_key: str, token: object) -> AskedBy | None:
        """The caller; None for what this process did not give that session's agent."""
        if not isinstance(token, str) or len(token) > _MOST:
            return None
        try:
            data = base64.b64decode(token, validate=True)
        except (binascii.Error, ValueError):
            return None
        mac, said = data[:_MAC_BYTES], data[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(session_key, said)):
            return None
        return AskedBy(*json.loads(said))

    def _mac(self, session_key: str, said: bytes) -> bytes:
        whole = session_key.encode() + b"\0" + said
        return hmac.digest(self._key, whole, "sha256")[:_MAC_BYTES]
