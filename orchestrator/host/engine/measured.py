"""Measures an engine: how long its calls take, and which of them fail."""

from collections.abc import Callable
from typing import Any, cast

from orchestrator.ground.metrics import ENGINE_OPERATIONS, Metrics
from orchestrator.host.engine.base import Engine


def measured(engine: Engine, metrics: Metrics) -> Engine:
    """Forwards every call and records its duration and whether it failed.

    `events`, which does not end, and `close` are not measured.
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
