"""The requests by which E2B's clients build templates."""

import asyncio
from functools import partial
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from api.compat.call import Call
from api.compat.e2b import views
from api.compat.e2b.builds.bodies import BuildBody, StatusQuery, TemplateBody
from api.compat.e2b.builds.builds import Build, Builds
from api.compat.e2b.builds.built import (
    DEFAULT_TAG,
    Built,
    Start,
    all_built,
    parsed_name,
)
from api.compat.e2b.builds.carrying_out import carry_out
from api.compat.e2b.builds.reuse import Recipe, shareable, states
from api.compat.e2b.builds.steps import HOME, plan
from api.compat.e2b.choice import chosen, image_names
from api.compat.e2b.credential import credential
from api.compat.spool import Spool, Spools
from api.http.body import UPLOAD_PACE, arriving, check_encoding
from api.http.endpoint import read_query
from api.http.forwarded import scheme_of
from api.operations.named_snapshots import remove_snapshot
from api.operations.templates import list_templates
from api.shape.context import Context, Kept
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import ConflictError, NotFoundError, ValidationError
from orchestrator.ground.round_robin import asking
from orchestrator.settings.e2b_names import DEFAULT_TEMPLATES
from paddock.contract.snapshots import SnapshotKeyQuery

# E2B's own images; Paddock's default image serves those who name them.
_OWN_IMAGES = ("e2bdev/base", "e2bdev/code-interpreter")
_ADDRESS = "upload"
# How long a build waits for its files and its steps.
_WAITS_SECONDS = 900


async def request(call: Call) -> web.Response:
    """A build, which waits for its files and its steps."""
    body = await call.body(TemplateBody)
    given = body.name or body.alias
    if given is None:
        raise ValidationError("name is missing", field="name")
    name, tag = parsed_name(given)
    await _check_free(call, name)
    tags = tuple(dict.fromkeys([*([tag] if tag else []), *(body.tags or [])])) or (DEFAULT_TAG,)
    build = Build(call.context.principal.account, name, tags, credential(call.request))
    call.context.kept.of(Builds).add(build)
    call.context.work.detach(_live(call.context, build))
    return views.answer(
        {
            "templateID": name,
            "buildID": build.id,
            "public": False,
            "names": [name],
            "aliases": [name],
            "tags": list(tags),
        },
        202,
    )


async def _live(context: Context, build: Build) -> None:
    """All of a build's life, at the end of which nothing of it is left but its log.

    It ends when the credential of its client does not hold any more, or the control plane stops.
    """
    try:
        with context.work.while_allowed(context.allowed):
            context.work.follow()
            with asking(context.principal.account, context.principal.name):
                async with asyncio.timeout(_WAITS_SECONDS):
                    doing = await build.begun
                await doing()
    except TimeoutError:
        build.fail(f"no steps came within {_WAITS_SECONDS} s")
    finally:
        if build.state in ("waiting", "building"):
            build.fail("the build was interrupted")
        await build.release()


async def _check_free(call: Call, name: str) -> None:
    """Raises: ConflictError for a name by which sandboxes would be made from something else."""
    operators = {each.name for each in (await call.done(list_templates)).items}
    others = {*DEFAULT_TEMPLATES, *call.plane.levels, *operators, *await image_names(call)}
    if name in others:
        raise ConflictError(f"{name} is there already, and no client's: choose another name")


async def files(call: Call) -> web.Response:
    """Where the files of a copy are sent, and whether they are there already."""
    name, digest = _name(call), call.context.path["hash"]
    build = call.context.kept.of(Builds).latest(call.context.principal.account, name)
    uploaded = build.upload(digest)
    query, node = {_ADDRESS: uploaded.token}, call.plane.settings.node
    if node is not None:
        query["node"] = node  # a gateway knows by it who waits for the files
    url = call.request.url.with_query(None).with_scheme(scheme_of(call.request))
    shown = {"present": uploaded.spool is not None, "url": f"{url}?{urlencode(query)}"}
    return views.answer(shown, 201)


def upload_credential(request: web.Request, plane: ControlPlane, kept: Kept) -> str:
    """The credential of the client that has the address. Raises: UnauthorizedError."""
    path = request.match_info
    token = request.query.get(_ADDRESS, "")
    return kept.of(Builds).receiving(path["template"], path["hash"], token)[0].credential


async def upload(call: Call) -> web.Response:
    """Keeps the files of a copy until the build."""
    path, settings = call.context.path, call.plane.settings
    token = call.request.query.get(_ADDRESS, "")
    build, uploaded = call.context.kept.of(Builds).receiving(path["template"], path["hash"], token)
    check_encoding(call.request)
    spools = call.context.kept.of(Spools)
    spool = Spool(spools, build.account, settings.state_dir, settings.min_free_disk_bytes)
    try:
        await spool.fill(arriving(call.request, UPLOAD_PACE))
        if build.uploads.get(path["hash"]) is not uploaded:
            raise ConflictError("the build does not wait for files any more")
    except BaseException:
        call.context.work.detach(spool.close())
        raise
    former, uploaded.spool = uploaded.spool, spool
    if former is not None:
        await former.close()
    return web.Response()


async def start(call: Call) -> web.Response:
    """Begins a build, which goes on without its client."""
    body = await call.body(BuildBody)
    build = _build(call)
    wanted, before = await _beginning(call, body)
    planned = plan(body.steps or [], before.variables, before.directory)
    ends = Start(
        planned.directory,
        planned.variables,
        body.start or before.command,
        body.ready or (None if body.start else before.ready),
    )
    known = await states(call, wanted, before, body.steps or [])
    recipe = Recipe(wanted, planned, ends, known, shareable(body))
    build.begin(partial(carry_out, call, build, recipe))
    return web.Response(status=202)


async def status(call: Call) -> web.Response:
    """How a build stands, and a part of its log."""
    query = read_query(call.request, StatusQuery)
    try:
        build = _build(call)
    except NotFoundError:
        kept = _kept(call, await all_built(call))
        return views.answer(_status(kept.name, kept.build_id, "ready"))
    entries = build.entries(query.offset, query.limit)
    shown = _status(build.name, build.id, build.state) | {"logEntries": entries}
    if build.failure is not None:
        shown["reason"] = {"message": build.failure, "step": build.failed_step, "logEntries": []}
    return views.answer(shown)


def _kept(call: Call, builds: list[Built]) -> Built:
    """A build that is complete, and of which nothing else is known. Raises: NotFoundError."""
    name, build_id = _name(call), call.context.path["build"]
    for each in builds:
        if (each.name, each.build_id) == (name, build_id):
            return each
    raise NotFoundError(f"there is no build {build_id[:64]} of the template {name}")


def _status(name: str, build_id: str, state: str) -> dict[str, Any]:
    shown: dict[str, Any] = {"templateID": name, "buildID": build_id, "status": state}
    return {**shown, "logs": [], "logEntries": []}


async def remove(call: Call, name: str) -> bool:
    """Removes all builds of the template; returns whether there was one."""
    own = [each for each in await all_built(call) if each.name == name]
    for each in own:
        await call.done(remove_snapshot, name=each.snapshot_id, query=SnapshotKeyQuery())
    return bool(own)


async def _beginning(call: Call, body: BuildBody) -> tuple[dict[str, Any], Start]:
    """The members of the session that carries out the steps, and what they begin with."""
    wanted = body.from_template or body.from_image or "base"
    if body.from_template is None and wanted.partition(":")[0] in _OWN_IMAGES:
        wanted = "base"
    # Where an image is named, a level may be, too: `FROM high` in a Dockerfile.
    known = {"base", *call.plane.levels, *await image_names(call)}
    if body.from_template is None and wanted not in known:
        raise ValidationError(
            f"the image {wanted} is not here: the operator adds it, "
            f"`paddock images add {wanted[:64]}`, or build from a template",
            field="fromImage",
        )
    choice = await chosen(call, wanted, {})
    return choice.members, choice.start or Start(HOME, {}, None, None)


def _build(call: Call) -> Build:
    account, builds = call.context.principal.account, call.context.kept.of(Builds)
    return builds.find(account, _name(call), call.context.path["build"])


def _name(call: Call) -> str:
    return parsed_name(call.context.path["template"])[0]
