"""A session's ports: open them to clients, list them, close them."""

from api.shape import stops
from api.shape.access import Access, Glass
from api.shape.answers import Made
from api.shape.context import Context
from api.shape.operation import SESSION, operation
from api.views.ports import opened_port
from api.views.ports import port as shown_port
from orchestrator.ground.errors import ConflictError, ValidationError
from orchestrator.sandbox.ports.open_ports import Ports as PortsService
from orchestrator.settings.preview_address import PreviewOrigin
from paddock.contract.ports import OpenedPort, Port, PortBody, Ports

_TAG = "Ports"
_PORTS = SESSION + "/ports"


@operation(
    "POST",
    _PORTS,
    Access.MANAGE,
    tag=_TAG,
    summary="Open a port",
    answers="The open port, and links to it.",
    errors=(
        "session_terminated",
        "invalid_transition",
        "conflict",
        "busy",
        "sandbox_unavailable",
    ),
    examples={"server": {"port": 8000, "seconds": 3600}},
    restores=True,
    glass=Glass.LASTING,
)
async def open_port(
    context: Context, previews: PreviewOrigin, ports: PortsService, body: PortBody
) -> Made[OpenedPort]:
    """Lets clients reach a program that listens on this port of the sandbox's loopback.

    The port is served at two addresses, to the keys that may use the session, to its handle, and to
    whoever has a link. At `host_url`, it has a host name of its own, as pages need that name their
    scripts from the root, or store something. At `url`, it has a path on an origin that is not the
    API's; pages have no storage there. Nothing needs to listen yet. An open port gets the new time;
    its earlier links keep theirs.
    """
    if previews.url is None:
        raise ConflictError(
            "this control plane serves no ports: its operator can set PADDOCK_PREVIEW_LISTEN"
        )
    session = context.session()
    opened = await context.work.complete(
        ports.open(context.principal, session, body.port, body.seconds)
    )
    return Made(opened_port(previews, session, opened, ports.link(opened)))


@operation(
    "GET",
    _PORTS,
    Access.READ,
    tag=_TAG,
    summary="List open ports",
    answers="The open ports.",
)
async def list_ports(context: Context, previews: PreviewOrigin) -> Ports:
    """The session's open ports. Their links are shown only when a port is opened."""
    session = context.session()
    found = sorted(session.ports.open.items())
    return Ports(items=[shown_port(previews, session, each) for _, each in found], next=None)


@operation(
    "DELETE",
    _PORTS + "/{port}",
    Access.MANAGE,
    tag=_TAG,
    summary="Close a port",
    answers="The port as it was closed.",
    stops=stops.closes_port,
)
async def close_port(
    context: Context, ports: PortsService, previews: PreviewOrigin, port: str
) -> Port:
    """Ends the port's connections at once. Its links never hold again."""
    if not (port.isascii() and port.isdigit() and len(port) <= 5):
        raise ValidationError("must be a number from 1 to 65535", field="port")
    session = context.session()
    closed = await context.work.complete(ports.close(context.principal, session, int(port)))
    return shown_port(previews, session, closed)
