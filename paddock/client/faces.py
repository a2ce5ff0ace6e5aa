"""One client, two interfaces: methods are coroutines or block, depending on their object's type.

A class of the client is written once, with coroutines. Its type parameter selects the interface: on
a `Session[Async]`, `exec` is awaited; on a `Session[Sync]`, `exec` returns when it is done: its
coroutine runs in the caller's thread, and from where it needs an event loop on that of the client.
"""

import functools
import types
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NamedTuple, ParamSpec, overload

from paddock.client.loop_thread import LoopThread
from paddock.client.transport import Transport

if TYPE_CHECKING:
    # A default makes the parameter optional; `typing` supports that from Python 3.13 on.
    from typing_extensions import TypeVar
else:
    from typing import TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Async:
    """Marks the awaited interface. It has no instances."""


class Sync:
    """Marks the blocking interface. It has no instances."""


if TYPE_CHECKING:
    F = TypeVar("F", Async, Sync, default=Async)
else:
    F = TypeVar("F", Async, Sync)


class Link(NamedTuple):
    """The shared objects of a client's parts; only the blocking interface has a `thread`."""

    transport: Transport
    thread: LoopThread | None = None


class Face(Generic[F]):
    """A part of a client."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._api = link.transport


class method(Generic[P, T]):  # noqa: N801 - it is used as a decorator
    """Makes a coroutine function a method of both interfaces."""

    def __init__(self, function: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        self._function = function
        functools.update_wrapper(self, function)  # type: ignore[arg-type]

    @overload
    def __get__(self, instance: Face[Sync], owner: Any) -> Callable[P, T]: ...
    @overload
    def __get__(self, instance: Face[Async], owner: Any) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, instance: None, owner: Any) -> "method[P, T]": ...
    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is None:
            return self
        bound = types.MethodType(self._function, instance)
        thread = instance._link.thread
        return bound if thread is None else _blocking(bound, thread.run)


class stream(Generic[P, T]):  # noqa: N801 - it is used as a decorator
    """Makes an asynchronous generator function a method of both interfaces."""

    def __init__(self, function: Callable[Concatenate[Any, P], AsyncGenerator[T, None]]) -> None:
        self._function = function
        functools.update_wrapper(self, function)  # type: ignore[arg-type]

    @overload
    def __get__(
        self, instance: Face[Sync], owner: Any
    ) -> Callable[P, Generator[T, None, None]]: ...
    @overload
    def __get__(
        self, instance: Face[Async], owner: Any
    ) -> Callable[P, AsyncGenerator[T, None]]: ...
    @overload
    def __get__(self, instance: None, owner: Any) -> "stream[P, T]": ...
    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is None:
            return self
        bound = types.MethodType(self._function, instance)
        thread = instance._link.thread
        return bound if thread is None else _blocking(bound, thread.iterate)


def _blocking(function: Callable[..., Any], run: Callable[[Any], Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return run(function(*args, **kwargs))

    return call
