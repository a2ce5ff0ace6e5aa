"""Names for shell completion that the control plane knows: levels, images, sessions."""

from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from paddock.cli.connection import Connection
from paddock.cli.exits import Failure

if TYPE_CHECKING:
    from paddock.client import Paddock

PACKAGED = ("low", "medium", "high")
# A person waits at the prompt.
_SECONDS = 1.0


def complete_level(incomplete: str) -> list[str]:
    """Matching levels: the control plane's, or the packaged ones if it does not answer."""
    return _matching(incomplete, _levels, PACKAGED)


def complete_image(incomplete: str) -> list[str]:
    """Matching images that sessions may request."""
    return _matching(incomplete, _images)


def complete_session(incomplete: str) -> list[str]:
    """Matching ids of live sessions."""
    return _matching(incomplete, _sessions)


def complete_template(incomplete: str) -> list[str]:
    """Matching templates."""
    return _matching(incomplete, _templates)


def _matching(
    incomplete: str,
    ask: Callable[["Paddock"], Coroutine[Any, Any, Iterable[str]]],
    otherwise: tuple[str, ...] = (),
) -> list[str]:
    import asyncio

    from paddock.client import PaddockError

    async def names() -> Iterable[str]:
        async with asyncio.timeout(_SECONDS), Connection(None, None, None).open() as paddock:
            return await ask(paddock)

    try:
        found = asyncio.run(names())
    except (Failure, PaddockError, TimeoutError):
        found = otherwise
    return [name for name in found if name.startswith(incomplete)]


async def _levels(paddock: "Paddock") -> list[str]:
    return [level.name for level in await paddock.policies.list()]


async def _images(paddock: "Paddock") -> list[str]:
    return [image.name for image in await paddock.images.list()]


async def _templates(paddock: "Paddock") -> list[str]:
    return [template.name for template in await paddock.templates.list()]


async def _sessions(paddock: "Paddock") -> list[str]:
    return [each.id for each in await paddock.sessions.list() if each.info.live]
