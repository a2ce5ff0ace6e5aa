"""Templates: listed, shown, prepared."""

from dataclasses import asdict
from typing import Any

from api.operations.sessions import CREATING
from api.shape.access import Access
from api.shape.context import Context
from api.shape.operation import operation
from orchestrator.operate.templates.preparation import PreparationFailure
from orchestrator.operate.templates.templates import ShownTemplate
from orchestrator.operate.templates.templates import Templates as TemplatesService
from orchestrator.operate.templates.warm_templates import WarmTemplates
from orchestrator.rules.policy.levels import DEFAULT_LEVEL
from paddock.contract.requests import NoBody
from paddock.contract.templates import Template, Templates

_TAG = "Templates"
_TEMPLATES = "/api/templates"
_TEMPLATE = _TEMPLATES + "/{name}"


@operation(
    "GET",
    _TEMPLATES,
    Access.READ_ALL,
    tag=_TAG,
    summary="List templates",
    answers="The templates.",
    errors=("engine_unavailable",),
)
async def list_templates(
    context: Context, templates: TemplatesService, warm: WarmTemplates
) -> Templates:
    """The operator's templates, and which are prepared."""
    return Templates(items=[_view(each, warm) for each in await templates.all()], next=None)


@operation(
    "GET",
    _TEMPLATE,
    Access.READ_ALL,
    tag=_TAG,
    summary="Show a template",
    answers="The template.",
    errors=("not_found", "engine_unavailable"),
)
async def show_template(
    context: Context, templates: TemplatesService, warm: WarmTemplates, name: str
) -> Template:
    """A template; `failure` has the output of the command that failed."""
    return _view(await templates.show(name), warm)


@operation(
    "POST",
    _TEMPLATE + "/build",
    Access.MANAGE,
    tag=_TAG,
    summary="Prepare a template",
    answers="The template, which is built.",
    errors=(*CREATING, "permission_denied", "busy", "too_large", "budget_exceeded"),
)
async def build_template(
    context: Context,
    templates: TemplatesService,
    warm: WarmTemplates,
    name: str,
    body: NoBody,
) -> Template:
    """Prepares the template unless it is built, also after a failure.

    The preparation continues if the client goes away.
    """
    return _view(await templates.build(context.principal, name), warm)


def _view(shown: ShownTemplate, warm: WarmTemplates) -> Template:
    """The template, and what is known of its workspace."""
    known, version, snapshot, failure = shown.template, shown.version, shown.snapshot, shown.failure
    return Template.model_validate(
        {
            "name": known.name,
            "description": known.description,
            "state": shown.state,
            "permission_level": known.permission_level or DEFAULT_LEVEL,
            "image": known.image if version is None else version.image,
            "files": list(known.files),
            "setup": list(known.setup),
            "digest": None if version is None else version.digest,
            "built_at": None if snapshot is None else snapshot.created_at,
            "size_bytes": None if snapshot is None else snapshot.bytes,
            "warm": known.warm,
            "ready": warm.ready(known.name),
            "failure": None if failure is None else _members(failure),
        }
    )


def _members(failure: PreparationFailure) -> dict[str, Any]:
    members = asdict(failure)
    del members["digest"]
    return members
