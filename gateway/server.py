"""The gateway as a server: opens it, listens, and stops when what is open has ended, or in time."""

import asyncio
import errno
import signal
import socket
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from aiohttp import web

from gateway.app import create_app, create_preview_app
from gateway.faces.routes import Faces
from gateway.http import http_options
from gateway.keys import FollowedKeys
from gateway.open import Gateway, open_gateway
from gateway.privileges import give_up
from gateway.settings import GatewaySettings
from orchestrator.cluster.postgres.directory import PostgresDirectory
from orchestrator.cluster.postgres.nodes import NodeAdmin
from orchestrator.cluster.postgres.pool import Access, ClusterDatabase
from orchestrator.cluster.tls import Face, gateway_context, public_context
from orchestrator.cluster.tls_trial import refused_as_gateway
from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import ClusterUnavailableError, PaddockError
from orchestrator.ground.serving.connections import CONNECTIONS, raise_descriptors
from orchestrator.ground.serving.private_memory import keep_memory_private
from orchestrator.ground.task_scope import TaskScope

_KEEPALIVE_SECONDS = 75.0
_BACKLOG = 1024

Say = Callable[[str], None]


async def serve(settings: GatewaySettings, say: Say) -> None:
    """Serves until TERM or INT, as a user without rights. Raises: ConfigError, PaddockError."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    # What only root may do comes first: files that others can't read, and ports below 1024.
    contexts = {face: _context(settings, face) for face in Face}
    _check_own(settings)
    public = _public(settings)
    async with AsyncExitStack() as closers:
        listener = closers.enter_context(_bound(settings, settings.gateway_port))
        previews = None
        if settings.gateway_preview_port is not None:
            previews = closers.enter_context(_bound(settings, settings.gateway_preview_port))
        give_up()
        keep_memory_private()
        opened = _opened(settings, contexts.__getitem__)
        gateway, faces = await closers.enter_async_context(opened)
        apps = [(create_app(gateway, faces=faces), listener, "the cluster's API")]
        if previews is not None:
            apps.append((create_preview_app(gateway), previews, "ports of sessions"))
        for app, bound, what in apps:
            await closers.enter_async_context(served(app, gateway, bound, public, settings))
            scheme = "http" if public is None else "https"
            host, port, *_ = bound.getsockname()
            say(f"serving {what} at {scheme}://{f'[{host}]' if ':' in host else host}:{port}")
        await stopping.wait()
        say("stopping: what is open may end")


@asynccontextmanager
async def _opened(
    settings: GatewaySettings, contexts: Callable[[Face], ssl.SSLContext]
) -> AsyncGenerator[tuple[Gateway, Faces]]:
    """The gateway, with the cluster's database, which may be away. Raises: ConfigError."""
    database = ClusterDatabase(
        Access(
            settings.cluster,
            settings.cluster_database.get_secret_value(),
            settings.cluster_database_password_file,
        )
    )
    await database.open()
    following = TaskScope("following the keys")
    try:
        with suppress(ClusterUnavailableError):  # each connection is checked again
            await database.check()
        keys = FollowedKeys(database)
        await keys.refresh()
        following.spawn(keys.follow())
        gateway = await open_gateway(
            PostgresDirectory(database),
            keys.ring,
            contexts,
            domain=settings.gateway_preview_domain,
        )
        try:
            yield gateway, Faces(gateway, settings.cluster, NodeAdmin(database))
        finally:
            await gateway.close()
    finally:
        await following.close()
        await database.close()


@asynccontextmanager
async def served(
    app: web.Application,
    gateway: Gateway,
    bound: socket.socket,
    public: ssl.SSLContext | None,
    settings: GatewaySettings,
) -> AsyncGenerator[None]:
    """Serves an application there meanwhile; at the end, what is open may end in its time."""
    runner = web.AppRunner(
        app,
        access_log=None,
        handler_cancellation=True,
        keepalive_timeout=_KEEPALIVE_SECONDS,
        shutdown_timeout=settings.gateway_drain_seconds,
        **http_options(gateway),
    )
    await runner.setup()
    if runner.server is not None:
        app[CONNECTIONS].bound(runner.server, raise_descriptors())
    try:
        await web.SockSite(runner, bound, ssl_context=public, backlog=_BACKLOG).start()
        yield
    finally:
        await runner.cleanup()


def _context(settings: GatewaySettings, face: Face) -> ssl.SSLContext:
    return gateway_context(settings.gateway_cert, settings.gateway_key, settings.gateway_ca, face)


def _check_own(settings: GatewaySettings) -> None:
    """Raises: ConfigError for a certificate that nodes refuse, because all they say is nothing."""
    cert, key, authority = settings.gateway_cert, settings.gateway_key, settings.gateway_ca
    refusal = refused_as_gateway(cert, key, authority)
    if refusal is not None:
        raise ConfigError(
            f"PADDOCK_GATEWAY_CERT: {cert}: nodes with the authority {authority} would refuse it:"
            f" {refusal}; make one: `paddock cluster certificates --gateway --replace`"
        )


def _public(settings: GatewaySettings) -> ssl.SSLContext | None:
    cert, key = settings.gateway_tls_cert, settings.gateway_tls_key
    return None if cert is None or key is None else public_context(cert, key)


def _bound(settings: GatewaySettings, port: int) -> socket.socket:
    """A socket at that address, which does not listen yet. Raises: PaddockError."""
    host = settings.gateway_host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        in_use = error.errno == errno.EADDRINUSE
        reason = "another program does" if in_use else error.strerror or str(error)
        raise PaddockError(
            f"can't listen on {host}:{port}: {reason}; set PADDOCK_GATEWAY_HOST and _PORT"
        ) from None
