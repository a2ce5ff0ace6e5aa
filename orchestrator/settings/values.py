"""Checks of single settings: addresses, images, URLs, secrets. Pure functions."""

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

MIN_SECRET_LENGTH = 16
# This word instead of an address means that there is no listener.
NOWHERE = "off"
RUNTIME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
IMAGE_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}"
_URL = re.compile(r"https?://[^\s/@?#]+(/[!-~]*)?")
_ORIGIN = re.compile(r"https?://([0-9A-Za-z._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?")
_SECRET = re.compile(r"[\x21-\x7e]+")


def split_address(text: str) -> tuple[str, int]:
    """Splits `host:port` (an IPv6 host is in brackets) into a pair. Raises: ValueError."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("an IPv6 host needs brackets, as in [::1]:8700")
    if not colon or not host or not (port.isascii() and port.isdigit()):
        raise ValueError("must be host:port, as in 127.0.0.1:8700")
    if int(port) > 65535:
        raise ValueError("the port must be between 0 and 65535")
    return host, int(port)


def check_secret(secret: str) -> None:
    """Raises ValueError if a key is too short or can't be sent in a header."""
    if len(secret) < MIN_SECRET_LENGTH or not _SECRET.fullmatch(secret):
        raise ValueError(f"must be at least {MIN_SECRET_LENGTH} visible ASCII characters")


def check_url(url: str) -> str:
    """Returns it. Raises: ValueError if it is not a URL to post to, or contains a user."""
    if not _URL.fullmatch(url):
        raise ValueError("must look like https://host/path, without a user")
    return url


def endpoint_parts(url: str) -> SplitResult:
    """The parts of a URL that `check_url` accepts. Raises: ValueError, also for its port."""
    parts = urlsplit(check_url(url))
    try:
        _ = parts.port
    except ValueError:
        raise ValueError("must have a port between 0 and 65535") from None
    return parts


def check_encrypted(parts: SplitResult) -> None:
    """Raises ValueError for http to anywhere but this host and private addresses."""
    if parts.scheme == "http" and not _is_near(parts.hostname or ""):
        raise ValueError("must be https: http is for localhost and private addresses only")


def _is_near(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return address.is_loopback or (address.is_private and not address.is_link_local)


def check_origin(url: str) -> str:
    """Returns it. Raises: ValueError unless it is a URL that ends with its host and port."""
    if not _ORIGIN.fullmatch(url):
        raise ValueError("must look like https://host or https://host:port")
    return url
