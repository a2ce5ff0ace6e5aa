"""What a call raises, so that a row of a table can be named where it raises nothing."""

from collections.abc import Callable
from typing import TypeVar

E = TypeVar("E", bound=Exception)


def raised(kind: type[E], call: Callable[..., object], *arguments: object) -> E | None:
    """The error of that kind; None: the call raises none."""
    try:
        call(*arguments)
    except kind as error:
        return error
    return None
