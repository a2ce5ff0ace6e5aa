"""The address and the URLs at which open ports of sessions are served."""

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from orchestrator.settings.instance_url import url_of
from orchestrator.settings.settings import Settings
from orchestrator.settings.values import NOWHERE, split_address

# Browsers resolve each name below it to their own machine, and no name server is asked.
_LOCAL_DOMAIN = "localhost"


@dataclass(slots=True)
class PreviewOrigin:
    """Where clients reach open ports: `url`, which its listener sets; None: nowhere.

    `named_below` is the operator's domain for the ports' own host names.
    """

    url: str | None
    named_below: str | None = None

    @property
    def domain(self) -> str | None:
        """The domain below which each port has a host name; None: ports have none."""
        if self.url is None:
            return None
        return self.named_below or (_LOCAL_DOMAIN if _is_loopback(self.url) else None)

    def named(self, label: str) -> str | None:
        """The URL of the host of that label, without a slash at the end; None as `domain`."""
        if self.url is None or (domain := self.domain) is None:
            return None
        parts = urlsplit(self.url)
        port = "" if parts.port is None else f":{parts.port}"
        return f"{parts.scheme}://{label}.{domain}{port}"


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


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == _LOCAL_DOMAIN
