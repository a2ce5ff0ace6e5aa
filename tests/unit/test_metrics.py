"""Metrics: their labels have fixed values."""

import inspect

import pytest

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.ground.metrics import ENGINE_OPERATIONS, Metrics
from orchestrator.host.engine.base import Engine
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.host.engine.measured import measured


def value(metrics: Metrics, series: str) -> float | None:
    lines = metrics.render().decode().splitlines()
    values = [line.rpartition(" ")[2] for line in lines if line.startswith(series + " ")]
    return float(values[0]) if values else None


def test_rules_that_a_sandbox_makes_up_are_other() -> None:
    metrics = Metrics()
    for rule in ("shell-operators", "made-up", "", None):
        metrics.denied(rule)
    assert value(metrics, 'paddock_denials_total{rule="shell-operators"}') == 1
    assert value(metrics, 'paddock_denials_total{rule="other"}') == 3
    assert "made-up" not in metrics.render().decode()


def test_requests_and_streams() -> None:
    metrics = Metrics()
    metrics.request("GET", "/a", 200, 0.02)
    metrics.request("GET", "/a", 200, None)
    assert value(metrics, 'paddock_http_requests_total{method="GET",route="/a",status="200"}') == 2
    assert value(metrics, 'paddock_http_request_seconds_count{method="GET",route="/a"}') == 1


def test_instances_share_nothing() -> None:
    one, other = Metrics(), Metrics()
    one.agent_reconnected()
    assert value(one, "paddock_agent_reconnects_total") == 1
    assert value(other, "paddock_agent_reconnects_total") == 0
    assert "_created" not in one.render().decode()


def test_every_call_of_the_engine_is_known() -> None:
    methods = {name for name in Engine.__abstractmethods__ if name not in ("events", "close")}
    assert set(ENGINE_OPERATIONS) == methods


async def test_the_engine_is_measured() -> None:
    metrics, fake = Metrics(), FakeEngine()
    engine = measured(fake, metrics)
    await engine.info()
    fake.fail_next("info")
    with pytest.raises(EngineUnavailableError):
        await engine.info()
    assert value(metrics, 'paddock_engine_call_seconds_count{operation="info"}') == 2
    assert value(metrics, 'paddock_engine_call_failures_total{operation="info"}') == 1
    await engine.close()
    assert fake.closed


async def test_calls_are_handed_on_as_they_are() -> None:
    for name in ENGINE_OPERATIONS:
        fake, metrics = FakeEngine(), Metrics()
        fake.fail_next(name)
        parameters = inspect.signature(getattr(Engine, name)).parameters.values()
        arguments = sum(each.kind is not each.KEYWORD_ONLY for each in parameters) - 1
        with pytest.raises(EngineUnavailableError):
            await getattr(measured(fake, metrics), name)(*[None] * arguments)
        assert fake.calls == [name]
        assert value(metrics, f'paddock_engine_call_failures_total{{operation="{name}"}}') == 1
