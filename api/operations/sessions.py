"""Sessions: created, listed, inspected, closed."""

from api.operations.placing import check_placement
from api.shape import stops
from api.shape.access import Access, Glass
from api.shape.answers import Created
from api.shape.context import Context
from api.shape.operation import SESSION, SESSIONS, operation
from api.shape.spread import spread
from api.views import sessions as views
from orchestrator.ground.errors import ConflictError, NotFoundError
from orchestrator.ground.log_context import know_secrets
from orchestrator.ground.serving.list_cursors import decode_cursor, encode_cursor
from orchestrator.operate.templates.templates import Templates
from orchestrator.sessions.sessions import Sessions as SessionsService
from orchestrator.settings.settings import Settings
from orchestrator.state import session as domain
from orchestrator.state.requests import NewSession
from orchestrator.state.session_pages import WantedSessions
from orchestrator.work.commands.recorded_commands import RecordedCommands
from paddock.contract.inspection import InspectedSession
from paddock.contract.session_requests import (
    CloseQuery,
    NamedSessionBody,
    SessionBody,
    SessionsQuery,
)
from paddock.contract.sessions import CreatedSession, PurgedWorkspace, Session, Sessions
from sandbox_agent.decide.redaction import Redactor

_TAG = "Sessions"
CREATING = (
    *("conflict", "max_refinements_exceeded", "capacity_exhausted", "engine_unavailable"),
    "cluster_unavailable",
    *("sandbox_unavailable", "not_found"),
)
_NEW = {
    "smallest": {},
    "labelled": {
        "permission_level": "low",
        "labels": {"team": "search"},
        "metadata": {"user": "Anna Lindqvist"},
        "limits": {"memory_bytes": 134217728},
        "idle_timeout": 600,
    },
    "limited": {
        "permission_level": "low",
        "wall_timeout": 86400,
        "budget": {"commands": 100, "cpu_seconds": 60},
    },
    "from a template": {"template": "website"},
    "with a volume": {"volumes": [{"name": "cache", "path": "/data/cache"}]},
    "secret": {"permission_level": "high", "secrets": {"SECRET_TOKEN": "tok_2b1f9c07d4e8"}},
}
_CREATED = "The new session, with its handle."


@operation(
    "POST",
    SESSIONS,
    Access.MANAGE,
    tag=_TAG,
    summary="Create a session",
    answers=_CREATED,
    errors=CREATING,
    examples=_NEW,
)
async def create_session(
    context: Context,
    sessions: SessionsService,
    templates: Templates,
    settings: Settings,
    body: SessionBody,
) -> Created[CreatedSession]:
    """Creates a session. Only this answer contains its handle."""
    check_placement(context, sessions, settings, body)
    request = await _request(context, templates, body)
    return await created(context, sessions, request, named=body.id is not None)


@operation(
    "GET",
    SESSIONS,
    Access.READ_ALL,
    tag=_TAG,
    summary="List sessions",
    answers="A page of sessions.",
    errors=("not_found",),
)
async def list_sessions(
    context: Context, sessions: SessionsService, query: SessionsQuery
) -> Sessions:
    """The caller's sessions, newest first; or the children of one."""
    parent_key = (
        None if query.parent is None else await _parent_key(context, sessions, query.parent)
    )
    wanted = WantedSessions(
        context.principal.sees_owner,
        sessions.registry.ended_after,
        query.status,
        query.label,
        query.metadata or (),
        query.work_id,
        parent_key,
        query.order == "asc",
        query.keys,
    )
    start = None if query.cursor is None else decode_cursor(query.cursor)
    found, following = await sessions.finder.page(wanted, start, query.limit)
    return Sessions(
        items=await spread(
            found, lambda one: views.session(one, veiled=context.veils(one.key, one.owner))
        ),
        next=None if following is None else encode_cursor(following),
    )


@operation(
    "GET",
    SESSION,
    Access.READ,
    tag=_TAG,
    summary="Inspect a session",
    answers="The session.",
    glass=Glass.OUTSIDE,
)
async def inspect_session(
    context: Context, sessions: SessionsService, recorded: RecordedCommands
) -> InspectedSession:
    """One session with its current activity."""
    session = context.session()
    await recorded.recall(session)
    inspection = await sessions.inspector.inspect(session)
    return views.inspected(
        session,
        inspection,
        context.shared.glass.of_session(session.key),
        veiled=context.veils(session.key, session.owner),
    )


@operation(
    "PUT",
    SESSION,
    Access.MANAGE,
    tag=_TAG,
    summary="Get or create a session",
    answers={200: "The session as it is.", 201: _CREATED},
    errors=CREATING,
    examples=_NEW,
)
async def ensure_session(
    context: Context,
    sessions: SessionsService,
    templates: Templates,
    settings: Settings,
    body: NamedSessionBody,
) -> Session | Created[CreatedSession]:
    """Creates the session with that id, or returns the existing one, whatever the body says.

    If it is being created, the answer comes after that.
    """
    wanted = (context.principal, context.session_id)
    while (session := await sessions.awaited(*wanted)) is None:
        check_placement(context, sessions, settings, body)
        request = await _request(context, templates, body, context.session_id)
        try:
            return await created(context, sessions, request, named=True)
        except ConflictError:
            if not sessions.begun(*wanted):
                raise  # it is somebody else's
    return shown(context, session)


@operation(
    "DELETE",
    SESSION,
    Access.MANAGE,
    tag=_TAG,
    summary="Close a session",
    answers="The session as it ended.",
    errors=("conflict",),
    stops=stops.ends_session,
    glass=Glass.OUTSIDE,
)
async def close_session(
    context: Context, sessions: SessionsService, query: CloseQuery
) -> Session | PurgedWorkspace:
    """Ends the session and releases everything that it holds; with `purge` also its workspace.

    This also purges the workspace of a session that ended long ago.
    """
    principal = context.principal
    try:
        session = context.session()
    except NotFoundError:
        if not query.purge:
            raise
        await context.work.complete(sessions.purge(principal, context.session_id))
        return PurgedWorkspace(id=context.session_id, purged=True)
    await context.work.complete(sessions.close(principal, session, purge=query.purge))
    return shown(context, session)


def shown(context: Context, session: domain.Session) -> Session:
    """A live session as its caller may see it."""
    return views.session(session, live=True, veiled=context.veils(session.key, session.owner))


async def _request(
    context: Context, templates: Templates, body: SessionBody, session_id: str | None = None
) -> NewSession:
    """The session to create; the template that it names is prepared."""
    request = views.new_session(body, session_id)
    if body.template is None:
        return request
    return await templates.prepared(context.principal, body.template, request)


async def created(
    context: Context, sessions: SessionsService, request: NewSession, *, named: bool
) -> Created[CreatedSession]:
    """The new session.

    If the client leaves, a queued request is dropped, and a session that is created later is
    closed, unless others have waited for it.
    """
    principal, work = context.principal, context.work
    lease = () if request.lease_id is None else (request.lease_id,)
    know_secrets(Redactor((*request.secrets.values(), *lease)).text)

    def leave(session: domain.Session) -> None:
        if not session.wanted:
            work.detach(sessions.close(principal, session, purge=not named))

    turn = await sessions.shares.slot(principal)
    registered = await work.complete(
        sessions.create(principal, request, turn),
        lambda created: leave(created.session),
    )
    return Created(views.created(registered, principal), f"{SESSIONS}/{registered.session.id}")


async def _parent_key(context: Context, sessions: SessionsService, session_id: str) -> str:
    """The key of the latest session with that id. Raises: NotFoundError."""
    return await sessions.finder.known_key(context.principal, session_id)
