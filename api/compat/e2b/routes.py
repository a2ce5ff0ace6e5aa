"""The paths of E2B's interface."""

from dataclasses import replace

from aiohttp import web

from api.compat.call import Call
from api.compat.e2b import lifetimes, metrics, network, sandboxes, snapshots, templates, volumes
from api.compat.e2b.builds import handlers as builds
from api.compat.e2b.builds import tags
from api.compat.e2b.credential import credential
from api.compat.e2b.failure import failure
from api.compat.e2b.inside.files import SIGNER_ROUTE
from api.compat.e2b.inside.routes import INSIDE_ROUTES, ROOT_ROUTES
from api.compat.protocol import OwnPorts, Protocol, Route
from api.shape.access import Access
from orchestrator.ground.errors import NotFoundError
from orchestrator.settings.e2b_names import SANDBOX_HEADER, plain_id

_READ_ALL, _READ, _MANAGE = Access.READ_ALL, Access.READ, Access.MANAGE
_SANDBOX = "/sandboxes/{session_id}"


def _of_sandbox(route: Route) -> Route:
    """The route for ids as older SDKs have them, too."""

    async def served(call: Call) -> web.StreamResponse:
        call.context = call.in_session(plain_id(call.context.session_id))
        return await route.handler(call)

    return replace(route, handler=served) if _SANDBOX in route.path else route


# `/v2` has what the SDKs use today, the others what older ones do.
_SANDBOXES = (
    Route("POST", "/v2/sandboxes", _MANAGE, sandboxes.create),
    Route("POST", "/sandboxes", _MANAGE, sandboxes.create),
    Route("GET", "/v2/sandboxes", _READ_ALL, sandboxes.list_all),
    Route("GET", "/sandboxes", _READ_ALL, sandboxes.list_all),
    Route("GET", _SANDBOX, _READ, sandboxes.show),
    Route("DELETE", _SANDBOX, _MANAGE, sandboxes.kill, stops=True),
    Route("POST", _SANDBOX + "/timeout", _MANAGE, lifetimes.set_timeout, stops=True),
    Route("POST", _SANDBOX + "/refreshes", _MANAGE, lifetimes.refresh),
    Route("POST", _SANDBOX + "/pause", _MANAGE, lifetimes.pause, stops=True),
    Route("POST", _SANDBOX + "/resume", _MANAGE, lifetimes.resume),
    Route("POST", _SANDBOX + "/connect", _MANAGE, lifetimes.connect),
    Route("POST", "/v2" + _SANDBOX + "/connect", _MANAGE, lifetimes.connect),
    Route("GET", _SANDBOX + "/metrics", _READ_ALL, metrics.show),
    Route("PUT", _SANDBOX + "/network", _MANAGE, network.change_network),
    Route("POST", _SANDBOX + "/snapshots", _MANAGE, snapshots.take),
    Route("POST", _SANDBOX + "/fork", _MANAGE, snapshots.fork),
)
_KEPT = (
    Route("GET", "/snapshots", _READ_ALL, snapshots.list_all),
    Route("GET", "/templates", _READ_ALL, templates.list_all),
    Route("GET", "/v2/templates", _READ_ALL, templates.list_all),
    Route("GET", "/templates/aliases/{alias}", _READ_ALL, templates.alias),
    Route("POST", "/templates/tags", _MANAGE, tags.assign),
    Route("DELETE", "/templates/tags", _MANAGE, tags.remove),
    Route("*", "/templates/tags", _READ_ALL, templates.refuse),
    Route("DELETE", "/templates/{template}", _MANAGE, templates.remove),
    Route("GET", "/templates/{template}/tags", _READ_ALL, tags.show),
    Route("POST", "/v3/templates", _MANAGE, builds.request),
    Route("POST", "/v2/templates", _MANAGE, builds.request),
    Route("GET", "/templates/{template}/files/{hash}", _MANAGE, builds.files),
    Route(
        *("PUT", "/templates/{template}/files/{hash}", _MANAGE, builds.upload),
        credential=builds.upload_credential,
    ),
    Route("POST", "/v2/templates/{template}/builds/{build}", _MANAGE, builds.start),
    Route("GET", "/templates/{template}/builds/{build}/status", _READ_ALL, builds.status),
    Route("POST", "/volumes", _MANAGE, volumes.create),
    Route("GET", "/volumes", _READ_ALL, volumes.list_all),
    Route("GET", "/volumes/{volume}", _READ_ALL, volumes.show),
    Route("DELETE", "/volumes/{volume}", _MANAGE, volumes.remove),
)


async def _no_secrets(call: Call) -> web.StreamResponse:
    raise NotFoundError(
        "E2B's secrets are not served: give a session secrets, or keep them outside the sandbox, "
        "`paddock secrets set NAME --host HOST --variable VARIABLE`"
    )


async def _nothing(call: Call) -> web.StreamResponse:
    raise NotFoundError("there is nothing at this path of E2B's interface")


# Refused in the form that the SDKs read.
_REFUSED = (
    Route("*", "/secrets{path:.*}", _READ_ALL, _no_secrets),
    Route("*", "/volumecontent/{path:.*}", _READ_ALL, volumes.refuse_content),
    *(
        Route("*", path, _READ_ALL, templates.refuse)
        for path in ("/v3/templates{path:.*}", "/v2/templates/{path:.*}", "/templates/{path:.*}")
    ),
    Route("*", "/{path:.*}", Access.OPEN, _nothing),
)
# Of the agent in a sandbox, and of its interpreter.
_PORTS = (49983, 49999)

PROTOCOL = Protocol(
    name="e2b",
    path="/compat/e2b",
    routes=(*map(_of_sandbox, _SANDBOXES), *_KEPT, SIGNER_ROUTE, *INSIDE_ROUTES, *_REFUSED),
    credential=credential,
    failure=failure,
    own_ports=OwnPorts(_PORTS, SANDBOX_HEADER, INSIDE_ROUTES, plain_id),
    at_root=ROOT_ROUTES,
)
