"""What a new sandbox is made from: a level, a template, an image or a snapshot, by one name."""

from typing import Any, NamedTuple

from api.compat.call import Call
from api.compat.e2b.builds.built import Start, all_built, parsed_name, tagged
from api.operations.images import list_images
from api.operations.named_snapshots import show_snapshot
from api.operations.templates import list_templates
from orchestrator.ground.errors import NotFoundError, ValidationError
from orchestrator.settings.e2b_names import DEFAULT_TEMPLATES, LEVEL, without_version
from paddock.contract.snapshots import SnapshotKeyQuery


class Choice(NamedTuple):
    """The members of a new session, of which its level is one, and what a client's template starts.

    `start` is None for all other sandboxes.
    """

    members: dict[str, Any]
    start: Start | None = None


async def chosen(call: Call, name: str, metadata: dict[str, str]) -> Choice:
    """What a new sandbox is made from.

    Raises: NotFoundError, ValidationError for a level that is none; as operations do.
    """
    found = await _found(call, name)
    level = metadata.get(LEVEL)
    if level is None:
        usual = call.context.principal.bounds.default_level(call.plane.levels)
        return found._replace(members={"permission_level": usual, **found.members})
    if level not in call.plane.levels:
        levels = "|".join(call.plane.levels)
        raise ValidationError(f"metadata.{LEVEL} must be {levels}", field="metadata")
    return found._replace(members={**found.members, "permission_level": level})


async def _found(call: Call, given: str) -> Choice:
    if given in await image_names(call):
        return Choice({"image": given})
    name = without_version(given)
    if name in DEFAULT_TEMPLATES:
        return Choice({})
    if name in call.plane.levels:
        return Choice({"permission_level": name})
    for template in (await call.done(list_templates)).items:
        if template.name == name:
            return Choice({"template": name, "permission_level": template.permission_level})
    return await _built(call, given) or await _snapshot(call, name)


async def _built(call: Call, given: str) -> Choice | None:
    """A template that a client has built, by `name` or `name:tag`."""
    try:
        name, tag = parsed_name(given)
    except ValidationError:
        return None
    found = tagged(await all_built(call), name, tag)
    if found is None:
        return None
    return Choice({**found.base, "from_snapshot": found.snapshot_id}, found.start)


async def _snapshot(call: Call, name: str) -> Choice:
    try:
        snapshot = await call.done(show_snapshot, name=name, query=SnapshotKeyQuery())
    except NotFoundError:
        raise NotFoundError(
            f"there is no template {name}: use `base`, a permission level, a template of "
            "`paddock templates list`, an image of `paddock images list`, or a snapshot's id"
        ) from None
    return Choice({"from_snapshot": snapshot.id})


async def is_there(call: Call, name: str) -> bool:
    """Whether sandboxes can be made from that name. Raises: as operations do."""
    try:
        await _found(call, name)
    except NotFoundError:
        return False
    return True


async def image_names(call: Call) -> list[str]:
    """The images that the caller may use."""
    return [each.name for each in (await call.done(list_images)).items if each.allowed]
