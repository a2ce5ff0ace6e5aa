"""Links to ports: tokens that name nothing and hold for one opened port until a time.

Pure functions. A token is `<unix seconds>.<HMAC-SHA256 in base64url>`.
"""

import base64
import hashlib
import hmac
import re

PATTERN = r"[0-9]{1,12}\.[A-Za-z0-9_-]{43}"
_TOKEN = re.compile(PATTERN, re.ASCII)


def link_token(secret: str, opening: str, expires_at: int) -> str:
    """The token for what is identified by `opening`, until `expires_at` in unix seconds."""
    text = f"paddock-port\n{opening}\n{expires_at}".encode()
    mac = hmac.digest(secret.encode(), text, hashlib.sha256)
    return f"{expires_at}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"


def expiry(secret: str, opening: str, token: str, now: float) -> int | None:
    """When the token expires; None if it does not hold for that opening, or not any more."""
    if _TOKEN.fullmatch(token) is None:
        return None
    expires_at = int(token.partition(".")[0])
    if not hmac.compare_digest(link_token(secret, opening, expires_at), token):
        return None
    return expires_at if now < expires_at else None
