"""One hook: which messages go where. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import SecretStr

from paddock.contract.words import HookEvent

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Hook:
    """`key` is the key whose sessions it is about; None: all sessions.

    `managed_by` is the key that may see and remove it; None: admins. `secret` None: it is lost.
    `configured`: it is in the operator's configuration.
    """

    id: str
    url: str
    events: tuple[HookEvent, ...]
    key: str | None
    managed_by: str | None
    set_by: str | None
    created_at: str
    secret: SecretStr | None = field(repr=False)
    configured: bool = False

    @property
    def origin(self) -> str:
        """The URL up to its host and port, because the rest may have a token."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"


def beneath(url: str, prefixes: Iterable[str]) -> bool:
    """Whether the URL is at one of the prefixes or beneath it, in whole segments of its path.

    A path that a server could understand as leading upwards is beneath nothing.
    """
    try:
        wanted = urlsplit(url)
        return _is_plain(wanted.path) and any(
            _origin(wanted) == _origin(prefix) and _within(wanted.path, prefix.path)
            for prefix in map(urlsplit, prefixes)
        )
    except ValueError:  # a malformed port
        return False


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


def _within(path: str, prefix: str) -> bool:
    stem = prefix.rstrip("/")
    return path == prefix or path.startswith(f"{stem}/") or (not stem and not path)


def _is_plain(path: str) -> bool:
    decoded = unquote(path)
    if "%" in decoded or "\\" in decoded:
        return False
    # Some servers drop what follows a semicolon.
    return not any(each.partition(";")[0] in (".", "..") for each in decoded.split("/"))
