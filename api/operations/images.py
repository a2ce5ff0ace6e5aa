"""The images that sessions may request."""

from api.shape.access import Access
from api.shape.context import Context
from api.shape.operation import operation
from paddock.contract.images import Image, Images


@operation(
    "GET",
    "/api/images",
    Access.READ_ALL,
    tag="Sessions",
    summary="List the images that sessions may request",
    answers="The images.",
    errors=("engine_unavailable",),
)
async def list_images(context: Context) -> Images:
    """The images on the operator's list, the default one first, and whether each is usable."""
    plane = context.plane
    listed, usual = plane.reload.images, plane.settings.image
    by_key = listed.permitted(plane.keys.bounds(context.principal).images)
    by_level = {level.name: listed.permitted(level.images) for level in plane.levels.values()}
    found = [
        Image(
            **image._asdict(),
            default=image.name == usual,
            allowed=image.name in by_key,
            levels=[level for level, permitted in by_level.items() if image.name in permitted],
            available=image.problem is None,
        )
        for image in await plane.images.list()
    ]
    return Images(items=found, next=None)
