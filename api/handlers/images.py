"""The images that sessions may request."""

from api.access import Access
from api.context import Context
from api.operation import operation
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
    usual = context.plane.settings.image
    bounds = context.plane.keys.bounds(context.principal).images
    found = [
        Image(
            **image._asdict(),
            default=image.name == usual,
            allowed=bounds is None or image.name in bounds,
            available=image.problem is None,
        )
        for image in await context.plane.images.list()
    ]
    return Images(items=found, next=None)
