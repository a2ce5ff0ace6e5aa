"""The host names of requests: those of the previews' listener, and each port's own. Pure functions.

Every other name is refused, so that no web page can make its own name lead here (DNS rebinding).
"""

from collections.abc import Sequence

from orchestrator.ground.errors import MisdirectedRequestError, NotFoundError
from orchestrator.sandbox.ports.host_names import NamedPort, read_label
from orchestrator.settings.allowed_hosts import AllowedHosts, host_name


def named_port(headers: Sequence[str], domain: str | None, hosts: AllowedHosts) -> NamedPort | None:
    """The port that the values of a request's `Host` headers name; None: an allowed host.

    Raises: NotFoundError for another name below the domain; MisdirectedRequestError.
    """
    label = _below(headers, domain)
    if label is not None and (named := read_label(label)) is not None:
        return named
    try:
        hosts.check(headers)
    except MisdirectedRequestError:
        if label is None:
            raise
        raise NotFoundError(
            f"no port has this host name: it must be PORT-SESSION.{domain}. "
            "`paddock ports SESSION` lists the addresses of a session's open ports"
        ) from None
    return None


def _below(headers: Sequence[str], domain: str | None) -> str | None:
    """What a host name has before the domain; None if it is not below it."""
    if domain is None or len(headers) != 1:
        return None
    try:
        name = host_name(headers[0])
    except ValueError:
        return None
    label = name.removesuffix(f".{domain}")
    return None if label == name else label
