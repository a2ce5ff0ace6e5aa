"""Snapshots of sandboxes, and forks."""

import re
import secrets
from typing import Any

from aiohttp import web

from api.compat.call import Call
from api.compat.e2b import views
from api.compat.e2b.bodies import ForkBody, SnapshotBody
from api.compat.e2b.builds.built import build_of
from api.compat.e2b.failure import error_body
from api.compat.e2b.queries import SnapshotsQuery
from api.compat.e2b.sandboxes import handed
from api.compat.e2b.times import set_time
from api.http.endpoint import read_query
from api.operations.forks import fork_session
from api.operations.named_snapshots import (
    create_snapshot,
    list_snapshots,
    remove_snapshot,
    show_snapshot,
)
from api.operations.sessions import close_session
from api.shape.objects import validated
from orchestrator.ground.errors import NotFoundError, PaddockError, ValidationError
from orchestrator.settings.e2b_names import without_version
from paddock.contract import snapshots as contract
from paddock.contract.session_requests import CloseQuery
from paddock.contract.sessions import CreatedSession
from paddock.contract.snapshots import SnapshotKeyQuery, SnapshotListQuery

# Every snapshot of Paddock has a name; these are for those that were given none.
_UNNAMED = re.compile(r"unnamed-[0-9a-f]{16}")


async def take(call: Call) -> web.Response:
    """A snapshot of a sandbox's files, from which sandboxes are made. Memory is not in it."""
    name = (await call.body(SnapshotBody)).name
    name = f"unnamed-{secrets.token_hex(8)}" if name is None else without_version(name)
    body = validated(contract.SnapshotBody, {"name": name})
    made = await call.done(create_snapshot, body=body)
    return views.answer(_view(made.model), 201)


async def list_all(call: Call) -> web.Response:
    """A page of the caller's snapshots; the header `X-Next-Token` if there are more."""
    query = read_query(call.request, SnapshotsQuery)
    if query.name is not None:
        return views.answer(await _named(call, query))
    asked: dict[str, Any] = {"limit": str(query.limit)}
    if query.sandbox is not None:
        asked["session"] = query.sandbox
    if query.token is not None:
        asked["cursor"] = query.token
    page = await call.done(list_snapshots, query=validated(SnapshotListQuery, asked))
    shown = [
        _view(each) | ({"position": f"{each.key}/{each.name}"} if query.positions else {})
        for each in page.items
        if build_of(each) is None
    ]
    return views.answer(shown, more=page.next)


async def remove(call: Call) -> web.Response:
    """Removes a snapshot: the only template that a client may remove."""
    name = without_version(call.context.path["template"])
    try:
        await call.done(remove_snapshot, name=name, query=SnapshotKeyQuery())
    except NotFoundError:
        raise NotFoundError(
            f"there is no snapshot {name}; templates and images are removed by the operator"
        ) from None
    return views.nothing()


async def fork(call: Call) -> web.Response:
    """Sandboxes that begin with the files that a sandbox has now: all of them, or none."""
    body = await call.body(ForkBody)
    wanted = contract.ForkBody(count=body.count)
    forked = (await call.done(fork_session, body=wanted)).model
    return views.answer([await _forked(call, made, body.timeout) for made in forked.sessions], 201)


async def _forked(call: Call, made: CreatedSession, seconds: int) -> dict[str, Any]:
    """A new sandbox that lives that long, or why it does not live."""
    context = call.in_session(made.id)
    try:
        await set_time(call, context, seconds)
    except PaddockError as error:
        purged = validated(CloseQuery, {"purge": "true"})
        await call.done(close_session, context=context, query=purged)
        return {"error": error_body(error)}
    return {"sandbox": handed(call, made)}


async def _named(call: Call, query: SnapshotsQuery) -> list[dict[str, Any]]:
    """The snapshot with that name, if there is one."""
    name = without_version(query.name or "")
    try:
        found = await call.done(show_snapshot, name=name, query=SnapshotKeyQuery())
    except (NotFoundError, ValidationError):
        return []
    shown = _view(found) | ({"position": f"{found.key}/{found.name}"} if query.positions else {})
    return [shown] if query.sandbox in (None, found.session_id) else []


def _view(snapshot: contract.NamedSnapshot) -> dict[str, Any]:
    unnamed = _UNNAMED.fullmatch(snapshot.name) is not None
    return {"snapshotID": snapshot.id, "names": [] if unnamed else [snapshot.name]}
