"""Tags of templates that E2B's clients have built: listed, and changed after the build."""

from collections.abc import Iterable

from aiohttp import web

from api.compat.call import Call
from api.compat.e2b import views
from api.compat.e2b.builds.bodies import RemovedTagsBody, TagsBody
from api.compat.e2b.builds.built import (
    Built,
    all_built,
    assigned,
    holders,
    parsed_name,
    removed,
    tagged,
)
from api.operations.named_snapshots import change_snapshot
from api.shape.objects import validated
from orchestrator.ground.errors import NotFoundError
from orchestrator.ground.events import now
from paddock.contract.snapshots import SnapshotChangeBody, SnapshotKeyQuery


async def show(call: Call) -> web.Response:
    """The tags of a template, each with its build."""
    name = parsed_name(call.context.path["template"])[0]
    found = _by_tag(await all_built(call), name)
    return views.answer(
        [
            {"tag": tag, "buildID": each.build_id, "createdAt": each.tags[tag]}
            for tag, each in found.items()
        ]
    )


async def assign(call: Call) -> web.Response:
    """Gives a build more tags; other builds of the template lose them."""
    body = await call.body(TagsBody)
    name, tag = parsed_name(body.target, "target")
    build = tagged(await all_built(call), name, tag)
    if build is None:
        raise NotFoundError(f"there is no template {body.target} that was built")
    tags = list(dict.fromkeys(body.tags))
    await _change(call, build, assigned(tags, now()))
    return views.answer({"tags": tags, "buildID": build.build_id}, 201)


async def remove(call: Call) -> web.Response:
    """Removes tags of a template. A build without any stays until the key's next build.

    If it fails halfway, what a tag means is what it was, because the build that it means is last.
    """
    body = await call.body(RemovedTagsBody)
    name, builds = parsed_name(body.name)[0], await all_built(call)
    present = _by_tag(builds, name)
    for tag in body.tags:
        if tag not in present:
            raise NotFoundError(f"the template {name} has no tag {tag}")
    for tag in dict.fromkeys(body.tags):
        own = [each for each in builds if each.name == name and tag in each.tags]
        for each in sorted(own, key=lambda build: build.tags[tag]):
            await _change(call, each, removed(each, tag))
    return views.nothing()


def _by_tag(builds: Iterable[Built], name: str) -> dict[str, Built]:
    """The builds of a template by their tags. Raises: NotFoundError if it has none."""
    found = {tag: each for (of, tag), each in holders(builds).items() if of == name}
    if not found:
        raise NotFoundError(f"there is no template {name} that was built")
    return found


async def _change(call: Call, build: Built, texts: dict[str, str | None]) -> None:
    body = validated(SnapshotChangeBody, {"metadata": texts})
    await call.done(change_snapshot, name=build.snapshot_id, query=SnapshotKeyQuery(), body=body)
