"""Returns what a call raises, so that a failing table row can be named."""

from collections.abc import Callable
from typing import TypeVar

E = TypeVar("E", bound=Exception)


def raised(kind: type[E], call: Callable[..., object], *arguments: object) -> E | None:
    """The error of that kind; None if the call raises none."""
    try:
        call(*arguments)
    except kind as error:
        return error
    return None
