"""The address and the URL at which open ports of sessions are served."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from orchestrator.settings.instance_url import url_of
from orchestrator.settings.settings import Settings
from orchestrator.settings.values import NOWHERE, split_address


@dataclass(slots=True)
class PreviewOrigin:
    """The URL at which clients reach open ports; None: nowhere. Its listener sets it."""

    url: str | None


def preview_address(settings: Settings) -> tuple[str, int] | None:
    """The host and port to listen on; None if ports are not served."""
    if settings.preview_listen == NOWHERE:
        return None
    if settings.preview_listen is not None:
        return split_address(settings.preview_listen)
    host, port = settings.address
    return host, min(port + 1, 65535) if port else 0


def preview_url(settings: Settings, listening: tuple[str, int] | None) -> str | None:
    """The URL for clients if the control plane listens at that address; None: nowhere."""
    if listening is None:
        return None
    return settings.preview_url or url_of(*listening)


def preview_hosts(settings: Settings) -> tuple[str, ...]:
    """The host names that requests may use besides the address."""
    named = urlsplit(settings.preview_url or "").hostname
    host = f"[{named}]" if named and ":" in named else named
    return (*settings.allowed_hosts, *([] if host is None else [host]))
