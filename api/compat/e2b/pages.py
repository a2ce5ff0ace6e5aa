"""Pages of lists. Pure functions."""

import base64
from collections.abc import Callable, Sequence
from typing import TypeVar

from orchestrator.ground.errors import ValidationError

Item = TypeVar("Item")


def page_of(
    items: Sequence[Item],
    position: Callable[[Item], str],
    order: str,
    most: int,
    token: str | None,
) -> tuple[list[Item], str | None]:
    """The items after those of the page that gave the `token`, and the next page's token.

    They are sorted by their positions, in the `order` asc or desc. Raises: ValidationError.
    """
    down = order == "desc"
    found = sorted(items, key=position, reverse=down)
    if token is not None:
        after = _decoded(token)
        found = [each for each in found if (position(each) < after) == down]
        found = [each for each in found if position(each) != after]
    page = found[:most]
    more = len(found) > len(page)
    return page, _encoded(position(page[-1])) if more else None


def _encoded(position: str) -> str:
    return base64.urlsafe_b64encode(position.encode()).decode()


def _decoded(token: str) -> str:
    try:
        return base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except ValueError:
        raise ValidationError("nextToken is not valid", field="nextToken") from None
