"""The images that sessions may request."""

from api.shape.access import Access
from api.shape.context import Context
from api.shape.operation import operation
from orchestrator.operate.operator.reload import Reload
from orchestrator.rules.access.keys import KeyRing
from orchestrator.rules.policy.levels import Levels
from orchestrator.sandbox.sandboxes.allowed_images import AllowedImages
from orchestrator.settings.settings import Settings
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
async def list_images(
    context: Context,
    reload: Reload,
    settings: Settings,
    keys: KeyRing,
    levels: Levels,
    images: AllowedImages,
) -> Images:
    """The images on the operator's list, the default one first, and whether each is usable."""
    listed, usual, own = reload.images, settings.image, settings.default_images
    by_key = listed.permitted(keys.bounds(context.principal).images)
    by_level = {level.name: listed.permitted(level.images) for level in levels.values()}
    found = [
        Image(
            **image._asdict(),
            default=image.name == usual,
            default_levels=[name for name in levels if own.get(name) == image.name],
            allowed=image.name in by_key,
            levels=[
                name
                for name, permitted in by_level.items()
                if image.name in permitted and images.has_level(image, levels[name])
            ],
            available=image.problem is None,
        )
        for image in await images.list()
    ]
    return Images(items=found, next=None)
