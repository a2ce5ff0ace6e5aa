"""OpenTelemetry: traces and metrics as they arrive at a receiver, and ids on record."""

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import use_span

from api.log.lines import make_formatter
from orchestrator.settings.settings import Settings
from paddock import Paddock
from tests.api.conftest import ADMIN_KEY, Api
from tests.support.otlp_receiver import OtlpReceiver, receiving_otlp
from tests.support.receiver import receiving
from tests.support.until import until

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SECRET = "hunter2-hunter2"


@pytest.fixture
async def otlp(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OtlpReceiver]:
    for name in os.environ:
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)
    async with receiving_otlp() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        yield receiver


@pytest.fixture
def settings(settings: Settings, otlp: OtlpReceiver) -> Settings:
    return settings.model_copy(update={"otel": True, "otel_interval": 1.0})


async def test_a_request_its_commits_the_agent_and_the_command_are_one_trace(
    api: Api, otlp: OtlpReceiver
) -> None:
    session = await api.session(permission_level="high", secrets={"TOKEN": SECRET})
    path = f"/api/sessions/{session['id']}"
    response = await api.call(
        *("POST", path + "/exec"),
        json={"command": f"echo {SECRET}"},
        headers={"traceparent": f"00-{TRACE}-{CALLER}-01"},
    )
    assert response.status == 200
    route = "POST /api/sessions/{session_id}/exec"
    await until(lambda: bool(otlp.named(route)) and bool(otlp.named("command")))
    (request,) = otlp.named(route)
    ours = [span for span in otlp.spans if span.trace_id == TRACE]
    assert {span.name for span in ours} == {route, "commit", "agent", "command"}
    assert (request.parent_id, request.kind) == (CALLER, Span.SPAN_KIND_SERVER)
    assert {span.parent_id for span in ours if span is not request} == {request.span_id}
    assert request.attributes == {
        "http.request.method": "POST",
        "http.route": "/api/sessions/{session_id}/exec",
        "http.response.status_code": 200,
    }
    (command,) = (span for span in ours if span.name == "command")
    assert command.attributes["paddock.session.id"] == session["id"]
    assert command.attributes["process.exit.code"] == 0
    # Neither a secret nor any word of a command is in a span.
    assert SECRET not in repr(otlp.spans)
    assert "echo" not in repr(otlp.spans)
    assert otlp.resource["service.name"] == "paddock"
    # Out: the answer, and the command's environment.
    assert response.headers["traceparent"] == f"00-{TRACE}-{request.span_id}-01"
    asked = [params for method, params in api.agent.requests if method == "exec"]
    sent = asked[-1]["env"]["TRACEPARENT"]
    assert sent == f"00-{TRACE}-{command.span_id}-01"
    # On record: who began it, and what it came to.
    events = (await api.json("GET", path + "/audit"))["items"]
    start, end = events[-2:]
    assert (start["operation"], end["operation"]) == ("command.start", "command.exit")
    assert start["args"]["trace_id"] == end["args"]["trace_id"] == TRACE
    assert start["args"]["span_id"] == request.span_id
    assert end["args"]["span_id"] == command.span_id


async def test_the_client_passes_its_programs_span_on(api: Api) -> None:
    url = str(api.server.make_url(""))
    provider = TracerProvider()
    async with Paddock(url, ADMIN_KEY) as paddock:
        with use_span(provider.get_tracer("program").start_span("work")) as span:
            session = await paddock.sessions.create(id="traced")
        await session.close()
    trace_id = f"{span.get_span_context().trace_id:032x}"
    events = (await api.json("GET", "/api/sessions/traced/audit"))["items"]
    traces = {event["operation"]: event["args"].get("trace_id") for event in events}
    assert traces["session.create"] == trace_id
    # Another request, in no span of the program, begins a trace of its own.
    assert traces["session.close"] not in (trace_id, None)


async def test_what_a_caller_does_not_send_is_not_sent_either(api: Api, otlp: OtlpReceiver) -> None:
    await api.call("GET", "/api/sessions", headers={"traceparent": f"00-{TRACE}-{CALLER}-00"})
    answer = await api.call("GET", "/api/node")
    last = answer.headers["traceparent"].split("-")[1]
    await until(lambda: any(span.trace_id == last for span in otlp.spans))
    assert not [span for span in otlp.spans if span.trace_id == TRACE]


@pytest.mark.parametrize(
    "header",
    [
        *("", "00", f"00-{TRACE}-{CALLER}", f"ff-{TRACE}-{CALLER}-01", "x" * 5000),
        *(f"00-{'0' * 32}-{CALLER}-01", f"00-{TRACE}-{'0' * 16}-01"),
        *(f"00-{TRACE.upper()}-{CALLER}-01", f"00-{TRACE}-{CALLER}-01-more"),
        f"00-{TRACE}-{CALLER}-0é",
    ],
)
async def test_a_malformed_header_begins_a_trace(api: Api, header: str) -> None:
    answer = await api.call("GET", "/api/node", headers={"traceparent": header})
    assert answer.status == 200
    assert TRACE not in answer.headers["traceparent"]


async def test_metrics_are_those_of_the_scrape(api: Api, otlp: OtlpReceiver) -> None:
    await api.session()
    await until(lambda: "paddock_http_request_seconds" in otlp.metrics)
    seconds = otlp.metrics["paddock_http_request_seconds"].histogram
    assert seconds.aggregation_temporality == 2  # cumulative
    point = seconds.data_points[0]
    assert sum(point.bucket_counts) == point.count > 0
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    assert otlp.metrics["paddock_http_requests"].sum.is_monotonic
    assert otlp.metrics["paddock_sessions"].gauge.data_points


async def test_log_lines_have_the_ids(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    lines: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(make_formatter("json").format(record))

    access = logging.getLogger("paddock.access")
    handler = Kept()
    access.addHandler(handler)
    access.setLevel(logging.INFO)
    try:
        header = f"00-{TRACE}-{CALLER}-01"
        await api.call("GET", "/api/node", headers={"traceparent": header})
        await until(lambda: bool(lines))
    finally:
        access.removeHandler(handler)
        access.setLevel(logging.NOTSET)
    assert json.loads(lines[0])["trace_id"] == TRACE


async def test_hooks_pass_the_trace_on(api: Api) -> None:
    async with receiving() as receiver:
        body = {"url": receiver.url, "events": ["session.closed"]}
        await api.json("POST", "/api/hooks", json=body, status=201)
        session = await api.session()
        header = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
        await api.json("DELETE", f"/api/sessions/{session['id']}", headers=header)
        await until(lambda: bool(receiver.requests))
        (got,) = receiver.requests
        assert got.headers["traceparent"] == got.json["traceparent"]
        assert got.headers["traceparent"].startswith(f"00-{TRACE}-")


@pytest.mark.parametrize("status", [503, None])
async def test_a_collector_that_is_down_delays_nothing(
    api: Api, otlp: OtlpReceiver, status: int | None
) -> None:
    """What waits is bounded, and the end of the control plane does not wait for the collector."""
    otlp.status = status
    await api.call("GET", "/api/node")
    await until(lambda: otlp.requests > 0)
    for _ in range(50):
        assert (await api.call("GET", "/api/node")).status == 200
    await asyncio.wait_for(api.plane.close(), 20)


def test_without_it_nothing_is_imported() -> None:
    script = "import sys, api.app, api.server\n" + (
        "print([n for n in sys.modules if n.startswith(('opentelemetry', 'google.protobuf',"
        " 'orchestrator.operate.telemetry', 'orchestrator.operate.exports.ocsf'))])"
    )
    run = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert run.stdout.strip() == "[]"
