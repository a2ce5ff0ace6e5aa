"""Requests to an issuer of tokens: by standard means, bounded, and without redirects."""

import ipaddress
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from paddock.connect.errors import NoAddressError

_SECONDS = 15.0
_MOST_BYTES = 256 * 1024


class RefusedError(Exception):
    """The issuer refuses, with one of the codes of OAuth 2.0."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would send a token elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        """Follows none."""


def is_safe(url: str) -> bool:
    """Whether tokens may be sent there: by https, or to this machine."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        return bool(parts.hostname)
    try:
        return parts.scheme == "http" and ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return parts.scheme == "http" and parts.hostname == "localhost"


def post_form(url: str, form: Mapping[str, str]) -> dict[str, Any]:
    """The JSON object that a form is answered with. Raises: RefusedError, NoAddressError."""
    if not is_safe(url):
        raise NoAddressError(f"{url} is no address to send a token to", "tell the operator")
    opener = urllib.request.build_opener(_NoRedirect())
    request = urllib.request.Request(  # noqa: S310
        url, urlencode(form).encode(), {"Accept": "application/json"}
    )
    try:
        with opener.open(request, timeout=_SECONDS) as answer:
            return _members(answer.read(_MOST_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            code = _members(error.read(_MOST_BYTES)).get("error")
        if isinstance(code, str):
            raise RefusedError(code) from None
        raise NoAddressError(f"{url} answers {error.code}", "try again later") from None
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise NoAddressError(f"{url} does not answer: {reason}", "try again later") from None


def _members(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
