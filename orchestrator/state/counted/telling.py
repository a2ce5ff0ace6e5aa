"""Objects that say when one of certain members is set, wherever that is."""

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def telling(*names: str) -> Callable[[type[T]], type[T]]:
    """A decorator for classes with slots: these members call `on_change` after they are set.

    Objects have that member themselves: a function that gets the object, or None.
    """

    def decorate(cls: type[T]) -> type[T]:
        for name in names:
            setattr(cls, name, _telling(cls.__dict__[name]))
        return cls

    return decorate


def _telling(slot: Any) -> property:
    def put(instance: Any, value: Any) -> None:
        slot.__set__(instance, value)
        # While the object is made, it has none.
        on_change = getattr(instance, "on_change", None)
        if on_change is not None:
            on_change(instance)

    return property(slot.__get__, put)
