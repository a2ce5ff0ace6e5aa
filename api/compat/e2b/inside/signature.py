"""Signed addresses of files, which carry no credential. Pure."""

import base64
import hashlib
import hmac
from collections.abc import Iterable
from typing import NamedTuple

from orchestrator.ground.errors import UnauthorizedError

_MOST_EXPIRATION = 10**12
_VERSION = "v1_"
# Of a digest in Base64, without padding.
_LETTERS = 43


class Signed(NamedTuple):
    """What an address says; `expiration` is in seconds since the epoch, as its text."""

    path: str
    operation: str
    username: str
    signature: str
    expiration: str | None


def signature_of(signed: Signed, token: str) -> str:
    """The signature that the holder of the token makes."""
    found = _digest(_beginning(signed), token, signed.expiration)
    return _VERSION + base64.b64encode(found).decode().rstrip("=")


def signer(signed: Signed, tokens: Iterable[str], now: float) -> str:
    """The token with which it was signed.

    All are tried, so that the time says nothing about which one it is; what they share is hashed
    once. Raises: UnauthorizedError.
    """
    given = _given(signed.signature)
    if signed.expiration is not None and not _holds(signed.expiration, now):
        raise UnauthorizedError("signature is already expired")
    beginning, found = _beginning(signed), None
    for token in tokens:
        if hmac.compare_digest(_digest(beginning, token, signed.expiration), given):
            found = token
    if found is None:
        raise _invalid()
    return found


def _given(signature: str) -> bytes:
    """The digest that a signature stands for. Raises: UnauthorizedError."""
    text = signature.removeprefix(_VERSION)
    if len(text) != _LETTERS or len(text) == len(signature):
        raise _invalid()
    try:
        return base64.b64decode(text + "=", validate=True)
    except ValueError:
        raise _invalid() from None


def _beginning(signed: Signed) -> "hashlib._Hash":
    parts = [signed.path, signed.operation, signed.username, ""]
    return hashlib.sha256(":".join(parts).encode("utf-8", "surrogatepass"))


def _digest(beginning: "hashlib._Hash", token: str, expiration: str | None) -> bytes:
    whole = beginning.copy()
    rest = token if expiration is None else f"{token}:{expiration}"
    whole.update(rest.encode("utf-8", "surrogatepass"))
    return whole.digest()


def _invalid() -> UnauthorizedError:
    return UnauthorizedError("invalid signature")


def _holds(expiration: str, now: float) -> bool:
    digits = expiration.isascii() and expiration.isdigit() and len(expiration) <= 12
    return digits and now <= int(expiration) < _MOST_EXPIRATION
