"""The paths of E2B's interface."""

from aiohttp import web

from api.compat.call import Call
from api.compat.e2b.credential import credential
from api.compat.e2b.failure import failure
from api.compat.e2b.inside.routes import INSIDE_ROUTES
from api.compat.protocol import Protocol, Route
from api.shape.access import Access
from orchestrator.ground.errors import NotFoundError


async def _nothing(call: Call) -> web.StreamResponse:
    raise NotFoundError("there is nothing at this path of E2B's interface")


PROTOCOL = Protocol(
    name="e2b",
    path="/compat/e2b",
    routes=(
        *INSIDE_ROUTES,
        # Everything else is refused in the form that the SDKs read.
        Route("*", "/{path:.*}", Access.OPEN, _nothing),
    ),
    credential=credential,
    failure=failure,
)
