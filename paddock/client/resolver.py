"""Addresses of the control plane's host."""

import socket

from aiohttp import ThreadedResolver
from aiohttp.abc import ResolveResult


class Resolver(ThreadedResolver):
    """Finds a host's addresses in a thread, and while the program ends without one.

    Hooks of a program's end may close sessions, and no thread begins then any more.
    """

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a host. Raises: OSError."""
        try:
            return await super().resolve(host, port, family)
        except RuntimeError:
            found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=int(address[1]),
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, address in found
        ]
