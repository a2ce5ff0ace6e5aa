"""Callbacks of an app, and how they are called."""

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

from paddock.app.execution import AppEvent, AppResult
from paddock.app.messages import Input, TokenUsage, ToolCall
from paddock.app.store import AppSnapshot

_log = logging.getLogger("paddock.app")

T = TypeVar("T")
Either: TypeAlias = T | Awaitable[T]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppHooks:
    """Functions that tell a host something, or ask it. Spawned children have none of them.

    The first four ask: False cancels; another value replaces; None changes nothing. What they raise
    reaches the caller. What the others raise is logged. `on_before_send` and `on_event` are plain
    functions; the others may be coroutine functions.
    """

    on_before_send: Callable[[str, Sequence[str]], Input | Literal[False] | None] | None = None
    on_tool_confirmation: Callable[[str, ToolCall], Either[bool]] | None = None
    on_before_persist: (
        Callable[[str, AppSnapshot], Either[AppSnapshot | Literal[False] | None]] | None
    ) = None
    on_before_restore: Callable[[str, str], Either[str | Literal[False] | None]] | None = None

    on_event: Callable[[str, AppEvent], None] | None = None
    on_tick_start: Callable[[int, str], Either[None]] | None = None
    on_tick_end: Callable[[int, TokenUsage], Either[None]] | None = None
    on_complete: Callable[[str, AppResult], Either[None]] | None = None
    on_error: Callable[[str, BaseException], Either[None]] | None = None
    on_after_send: Callable[[str, AppResult], Either[None]] | None = None
    on_session_create: Callable[[str], Either[None]] | None = None
    on_session_close: Callable[[str], Either[None]] | None = None
    on_after_persist: Callable[[str, AppSnapshot], Either[None]] | None = None
    on_after_restore: Callable[[str, AppSnapshot], Either[None]] | None = None


async def asked(hook: Callable[..., Any] | None, *given: Any) -> Any:
    """What a hook answers; None without a hook."""
    if hook is None:
        return None
    answer = hook(*given)
    return await answer if inspect.isawaitable(answer) else answer


async def told(hook: Callable[..., Any] | None, *given: Any) -> None:
    """Calls a hook that only listens; a failure of it is logged."""
    try:
        await asked(hook, *given)
    except Exception:  # noqa: BLE001 - a listener ends nothing
        _log.exception("a hook failed")


def told_now(hook: Callable[..., None] | None, *given: Any) -> None:
    """As `told`, for a plain function."""
    try:
        if hook is not None:
            hook(*given)
    except Exception:  # noqa: BLE001 - a listener ends nothing
        _log.exception("a hook failed")
