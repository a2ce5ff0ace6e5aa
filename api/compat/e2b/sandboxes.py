"""Sandboxes: created, listed, shown, killed."""

from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from api.compat.call import Call
from api.compat.e2b import views
from api.compat.e2b.bodies import SandboxBody
from api.compat.e2b.builds.built import Start
from api.compat.e2b.builds.starting import begin
from api.compat.e2b.choice import Choice, chosen
from api.compat.e2b.credential import credential
from api.compat.e2b.inside.tokens import Tokens
from api.compat.e2b.network import narrowing
from api.compat.e2b.queries import SandboxesQuery
from api.compat.e2b.times import new_times
from api.http.endpoint import read_query
from api.operations.sessions import (
    close_session,
    create_session,
    ensure_session,
    inspect_session,
    list_sessions,
)
from api.shape.answers import Created
from api.shape.objects import validated
from orchestrator.cluster.session_ids import (
    REPEATED_HEADER,
    is_repeatable,
    repeated_session_id,
)
from orchestrator.ground.errors import NotFoundError, PaddockError, ValidationError
from orchestrator.rules.access.key_scopes import covers
from orchestrator.rules.access.keys import digest
from orchestrator.settings.e2b_names import TEMPLATE_LABEL
from paddock.contract.session_requests import (
    CloseQuery,
    NamedSessionBody,
    SessionBody,
    SessionsQuery,
)
from paddock.contract.sessions import CreatedSession, Session, Sessions

# Where E2B's sandboxes have their files.
HOME = "/home/user"
# Of sessions, for one page of sandboxes.
_MOST_PAGES = 16


async def create(call: Call) -> web.Response:
    """A new sandbox; with `Idempotency-Key`, the one that an earlier request with it has made."""
    body = await call.body(SandboxBody)
    choice = await chosen(call, body.template, body.metadata or {})
    wanted = _wanted(call, body, choice)
    repeated = call.request.headers.get(REPEATED_HEADER)
    if repeated is None:
        made = await call.done(create_session, body=validated(SessionBody, wanted, _known(call)))
    else:
        context = call.in_session(_id_of(call, repeated))
        named = validated(NamedSessionBody, wanted, _known(call))
        made = await call.done(ensure_session, context=context, body=named)
    if not isinstance(made, Created):
        return views.answer(found(call, made), 201)
    if choice.start is not None:
        await _begin(call, made.model, choice.start)
    return views.answer(handed(call, made.model), 201)


async def _begin(call: Call, made: CreatedSession, start: Start) -> None:
    """Starts what the sandbox's template starts. Raises: as `begin`; it is gone then."""
    context = call.in_session(made.id)
    try:
        await begin(call, context, start)
    except PaddockError:
        purged = validated(CloseQuery, {"purge": "true"})
        await call.done(close_session, context=context, query=purged)
        raise


def handed(call: Call, made: CreatedSession) -> dict[str, Any]:
    """A new sandbox, whose handle signs addresses from now on."""
    tokens = call.context.kept.of(Tokens)
    tokens.note(call.in_session(made.id).session(), made.handle)
    return views.created(made, made.handle, call.plane.previews)


def found(call: Call, shown: Session) -> dict[str, Any]:
    """A sandbox that was there already, for its owner.

    It gets the handle that was used last, if this process knows it and it holds, or else the
    caller's own credential, which serves inside, too.
    """
    by_handle = call.plane.sessions.finder.by_handle
    known = call.context.kept.of(Tokens).live(shown.id)
    holding = (each for each in known if by_handle(digest(each)) is not None)
    keys = call.plane.keys
    # A handle may do what the owner's key may, which may be more than the caller's scopes.
    principal = call.context.principal
    handed_out = covers(keys.scopes(principal), keys.scopes_of(shown.owner))
    # Nor is it for an admin whose access ends before the handle.
    handed_out = handed_out and not call.plane.glass.needed(principal, shown.owner)
    token = (next(holding, None) if handed_out else None) or credential(call.request)
    return views.created(shown, token, call.plane.previews)


async def list_all(call: Call) -> web.Response:
    """A page of the caller's sandboxes; the header `X-Next-Token` if there are more."""
    query = read_query(call.request, SandboxesQuery)
    found, token = await _sessions(call, query)
    return views.answer([views.listed(each) for each in found], more=token)


async def show(call: Call) -> web.Response:
    """A sandbox. Raises: NotFoundError if it has ended."""
    shown = await call.done(inspect_session)
    if not shown.live:
        raise NotFoundError(f"sandbox {shown.id} was not found: it has ended ({shown.status})")
    level = call.plane.levels.get(shown.permission_level)
    reaches = level is not None and level.network != "none"
    return views.answer(views.detail(shown, call.plane.previews, reaches=reaches))


async def kill(call: Call) -> web.Response:
    """Ends a sandbox and removes its files. Raises: NotFoundError, also if it has ended."""
    session = call.context.of(vars(close_session)["operation"]).session()
    lived = session.live
    await call.done(close_session, query=validated(CloseQuery, {"purge": "true"}))
    if not lived:
        raise NotFoundError(f"sandbox {session.id} was not found: it has ended")
    return views.nothing()


def _wanted(call: Call, body: SandboxBody, choice: Choice) -> dict[str, Any]:
    """The members of the session. Raises: ValidationError."""
    begun = {} if choice.start is None else choice.start.variables
    wanted = {
        **choice.members,
        **new_times(call, body.timeout, pauses=body.auto_pause),
        "labels": {TEMPLATE_LABEL: body.template},
        "metadata": body.metadata or {},
        "env": {**begun, **(body.env or {})},
        "volumes": [each.model_dump() for each in body.volumes or []],
        "workspace_path": HOME,
    }
    rules = narrowing(body.network, body.allow_internet_access)
    level = call.plane.levels[choice.members["permission_level"]]
    if rules is not None and (level.network != "none" or rules.get("allow")):
        wanted["egress"] = rules  # at a level without a network, nothing is reached anyway
    return wanted


def _known(call: Call) -> dict[str, Any]:
    return {"levels": call.plane.levels}


def _id_of(call: Call, repeated: str) -> str:
    """The id of the sandbox that this caller's requests with that key make."""
    if not is_repeatable(repeated):
        text = f"{REPEATED_HEADER} must have 1 to 255 characters"
        raise ValidationError(text, field=REPEATED_HEADER)
    return repeated_session_id(call.context.principal.account, repeated)


async def _sessions(call: Call, query: SandboxesQuery) -> tuple[list[Session], str | None]:
    """The sessions of a page, and the next page's token.

    Only so many sessions are looked through that others do not wait for it, so there may be fewer
    than a page's, or none, although there are more.
    """
    asked: dict[str, Any] = {"status": "live", "order": query.order, "cursor": query.token}
    if query.keys is not None:
        asked["keys"] = ",".join(query.keys)
    if query.metadata:
        asked["metadata"] = urlencode(query.metadata)
    if query.template is not None:
        asked["label"] = f"{TEMPLATE_LABEL}:{query.template}"
    found: list[Session] = []
    for _ in range(_MOST_PAGES):
        # No more than are still wanted: what is read is shown, and the cursor follows it.
        asked["limit"] = str(query.limit - len(found))
        given = {name: value for name, value in asked.items() if value is not None}
        page = await _listed(call, given)
        found += [each for each in page.items if _is_wanted(each, query)]
        asked["cursor"] = page.next
        if page.next is None or len(found) == query.limit:
            break
        if query.order == "desc" and any(_is_older(each, query) for each in page.items[-1:]):
            return found, None
    return found, asked["cursor"]


async def _listed(call: Call, asked: dict[str, Any]) -> Sessions:
    """A page of sessions. Raises: ValidationError, which names the token."""
    try:
        page: Sessions = await call.done(list_sessions, query=validated(SessionsQuery, asked))
    except ValidationError as error:
        if error.fields.get("field") != "cursor":
            raise
        raise ValidationError("nextToken is not valid", field="nextToken") from None
    return page


def _is_wanted(session: Session, query: SandboxesQuery) -> bool:
    if TEMPLATE_LABEL not in session.labels:
        return False  # no client of E2B's has made it, and a list may be what such a client ends
    if not session.live or views.state(session) not in query.state:
        return False
    return not _is_older(session, query)


def _is_older(session: Session, query: SandboxesQuery) -> bool:
    """Whether it is older than all that are wanted."""
    after = query.started_after
    return after is not None and views.moment(session.created_at) < after
