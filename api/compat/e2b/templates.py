"""Templates: the operator's, images, and those that clients have built; listed and found."""

from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from api.compat.call import Call
from api.compat.e2b import snapshots, views
from api.compat.e2b.builds import handlers as builds
from api.compat.e2b.builds.built import Built, all_built
from api.compat.e2b.choice import image_names, is_there
from api.operations.templates import list_templates
from orchestrator.ground.errors import NotFoundError, ValidationError
from orchestrator.settings.e2b_names import DEFAULT_TEMPLATES
from paddock.contract.templates import Template

_MIB = 1024 * 1024
_BUILDS = {"built": "ready", "stale": "ready", "building": "building", "failed": "error"}


async def list_all(call: Call) -> web.Response:
    """Templates and images from which the caller may make sandboxes."""
    templates = (await call.done(list_templates)).items
    found = [_view(call, each.name, each.permission_level, each) for each in templates]
    usual = call.context.principal.bounds.default_level(call.plane.levels)
    others = [views.DEFAULT_TEMPLATE, *await image_names(call)]
    built = {each.name: each for each in reversed(await all_built(call))}
    return views.answer(
        [
            *found,
            *(_view(call, each, usual) for each in others),
            *(_view_of_built(call, each) for each in built.values()),
        ]
    )


async def alias(call: Call) -> web.Response:
    """Whether sandboxes can be made from that name. Raises: NotFoundError."""
    name = call.context.path["alias"]
    if not await is_there(call, name):
        raise NotFoundError(f"there is no template {name}")
    return views.answer({"templateID": name, "public": name in DEFAULT_TEMPLATES})


async def remove(call: Call) -> web.Response:
    """Removes a template that a client has built, or a snapshot."""
    if await builds.remove(call, call.context.path["template"]):
        return views.nothing()
    return await snapshots.remove(call)


async def refuse(call: Call) -> web.Response:
    """Raises: ValidationError."""
    raise ValidationError(
        "this request about templates is not served: they are built, listed, tagged and removed; "
        "anything else of one is changed by another build"
    )


def _view_of_built(call: Call, built: Built) -> dict[str, Any]:
    usual = call.context.principal.bounds.default_level(call.plane.levels)
    shown = _view(call, built.name, built.base.get("permission_level", usual))
    at = {"createdAt": built.created_at, "updatedAt": built.created_at}
    return {**shown, **at, "buildID": built.build_id, "buildCount": 1}


def _view(call: Call, name: str, level: str, template: Template | None = None) -> dict[str, Any]:
    known = call.plane.levels.get(level)
    built = None if template is None else template.built_at
    at = views.moment(built or datetime.fromtimestamp(0, UTC))
    return {
        "templateID": name,
        "buildID": name,
        "cpuCount": 1 if known is None else max(1, round(known.limits.cpus)),
        "memoryMB": 0 if known is None else known.limits.memory_bytes // _MIB,
        "diskSizeMB": 0 if known is None else known.limits.workspace_bytes // _MIB,
        "public": name in DEFAULT_TEMPLATES,
        "aliases": [name],
        "names": [name],
        "createdAt": at,
        "updatedAt": at,
        "createdBy": None,
        "lastSpawnedAt": None,
        "spawnCount": 0,
        "buildCount": 0,
        "envdVersion": views.VERSION,
        "buildStatus": "ready" if template is None else _BUILDS.get(template.state, "waiting"),
        "description": "" if template is None else template.description,
    }
