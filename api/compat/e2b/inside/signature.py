"""Signed addresses of files, which carry no credential. Pure."""

import base64
import hashlib
import hmac
from collections.abc import Iterable
from typing import NamedTuple

from orchestrator.ground.errors import UnauthorizedError

_MOST_EXPIRATION = 10**12


class Signed(NamedTuple):
    """What an address says; `expiration` is in seconds since the epoch, as its text."""

    path: str
    operation: str
    username: str
    signature: str
    expiration: str | None


def signature_of(signed: Signed, token: str) -> str:
    """The signature that the holder of the token makes."""
    parts = [signed.path, signed.operation, signed.username, token]
    if signed.expiration is not None:
        parts.append(signed.expiration)
    found = hashlib.sha256(":".join(parts).encode("utf-8", "surrogatepass")).digest()
    return "v1_" + base64.b64encode(found).decode().rstrip("=")


def signer(signed: Signed, tokens: Iterable[str], now: float) -> str:
    """The token with which it was signed.

    All are tried, so that the time says nothing about which one it is. Raises: UnauthorizedError.
    """
    given = signed.signature.encode("utf-8", "surrogatepass")
    found = None
    for token in tokens:
        if hmac.compare_digest(signature_of(signed, token).encode(), given):
            found = token
    if found is None:
        raise UnauthorizedError("invalid signature")
    if signed.expiration is not None and not _holds(signed.expiration, now):
        raise UnauthorizedError("signature is already expired")
    return found


def _holds(expiration: str, now: float) -> bool:
    digits = expiration.isascii() and expiration.isdigit() and len(expiration) <= 12
    return digits and now <= int(expiration) < _MOST_EXPIRATION
