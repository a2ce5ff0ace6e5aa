"""An engine whose calls are measured."""

from collections.abc import Callable
from typing import Any, cast

from orchestrator.engine.base import Engine
from orchestrator.observe.metrics import ENGINE_OPERATIONS, Metrics


def measured(engine: Engine, metrics: Metrics) -> Engine:
    """Hands every call on, and records how long it took and whether it failed.

    `events`, which lasts, and `close` are not measured.
    """
    return cast(Engine, _Measured(engine, metrics))


class _Measured:
    def __init__(self, engine: Engine, metrics: Metrics) -> None:
        self.events = engine.events
        self.close = engine.close
        for name in ENGINE_OPERATIONS:
            setattr(self, name, _timed(getattr(engine, name), name, metrics))


def _timed(call: Callable[..., Any], name: str, metrics: Metrics) -> Callable[..., Any]:
    async def timed(*args: Any, **kwargs: Any) -> Any:
        with metrics.engine_call(name):
            return await call(*args, **kwargs)

    return timed
