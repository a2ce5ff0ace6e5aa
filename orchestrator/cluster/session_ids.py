"""Ids of new sessions for which a client names none, as nodes and gateways make them."""

import hashlib
import re
import secrets

# The header with which a client asks again for the same session.
REPEATED_HEADER = "Idempotency-Key"
_KEY = re.compile(r"[\x21-\x7e]{1,255}")


def new_session_id() -> str:
    """An id that nobody else has: 64 random bits."""
    return f"sess-{secrets.token_hex(8)}"


def is_repeatable(key: str) -> bool:
    """Whether it is a value of `Idempotency-Key`."""
    return _KEY.fullmatch(key) is not None


def repeated_session_id(account: str, key: str) -> str:
    """The id of the session that this account's requests with that `Idempotency-Key` make."""
    named = f"{account}\n{key}"
    return f"sbx-{hashlib.sha256(named.encode()).hexdigest()[:16]}"
