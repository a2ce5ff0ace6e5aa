"""Malformed messages of the Model Context Protocol get a clear error and change nothing."""

import json
import logging
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.mcp.messages import McpError, negotiated, object_parameter, request_id, text_parameter
from tests.api.conftest import Api
from tests.api.test_mcp import Talk, begun
from tests.support.cases import each

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
METHODS = st.sampled_from(
    [
        *("tools/call", "tools/list", "resources/read", "ping", "notifications/cancelled"),
        *("prompts/list", "prompts/get", "completion/complete", "logging/setLevel"),
        *("resources/templates/list", "resources/subscribe", "resources/unsubscribe", "nothing"),
    ]
)
# Parameters of the right names, with any values.
KNOWN = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["tool_manual", "level_rules"]) | JSON_VALUES,
        "arguments": st.dictionaries(st.sampled_from(["tool", "x"]), JSON_VALUES) | JSON_VALUES,
        "level": st.sampled_from(["debug", "x"]) | JSON_VALUES,
        "uri": st.builds("paddock://files/{}".format, st.text(max_size=8)) | JSON_VALUES,
        "ref": st.fixed_dictionaries(
            {
                "type": st.sampled_from(["ref/prompt", "ref/resource"]) | JSON_VALUES,
                "name": st.just("tool_manual") | JSON_VALUES,
                "uri": st.just("paddock://files/{+path}") | JSON_VALUES,
            }
        )
        | JSON_VALUES,
        "argument": st.fixed_dictionaries(
            {"name": st.sampled_from(["tool", "path"]) | JSON_VALUES, "value": JSON_VALUES}
        )
        | JSON_VALUES,
        "_meta": JSON_VALUES,
    },
)
NAMES = st.sampled_from(["exec", "read_file", "write_file", "list_files", "signal_process"])


@pytest.fixture
async def talk(api: Api) -> Talk:
    return await begun(api)


@each(
    "body",
    [
        b"",
        b"[]",
        b"[" * 100_000,
        b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]',
        b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}',
        b'{"id": 1, "method": "ping"}',
        b'{"jsonrpc": "2.0", "id": 1, "id": 2, "method": "ping"}',
        b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}',
        b'{"jsonrpc": "2.0", "id": true, "method": "ping"}',
        b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}',
        b'{"jsonrpc": "2.0", "id": 1, "method": 7}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": "\\ud800"}}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "more": 1}',
        json.dumps({"jsonrpc": "2.0", "id": "x" * 300, "method": "ping"}).encode(),
        b"\xff\xfe",
    ],
)
async def test_what_is_no_message(api: Api, talk: Talk, body: bytes) -> None:
    headers = {"Mcp-Session-Id": talk.id}
    path = f"{talk.path}/mcp"
    problem = await api.problem(
        400, "validation_error", "POST", path, data=body, headers=headers, key=talk.key
    )
    assert len(problem["detail"]) < 300


@each(
    ("message", "code"),
    [
        ({"method": "nothing"}, -32601),
        ({"method": "initialized"}, -32601),
        ({"method": "tools/call"}, -32602),
        ({"method": "tools/call", "params": {"name": 1}}, -32602),
        ({"method": "tools/call", "params": {"name": "nothing"}}, -32602),
        ({"method": "tools/call", "params": {"name": "exec", "arguments": []}}, -32602),
        ({"method": "resources/read"}, -32602),
        ({"method": "resources/read", "params": {"uri": "paddock://else"}}, -32002),
    ],
)
async def test_requests_that_can_not_be(talk: Talk, message: dict[str, Any], code: int) -> None:
    response = await talk.post({"id": 1, **message})
    error = (await response.json())["error"]
    assert (response.status, error["code"]) == (200, code)


async def test_headers_are_checked(api: Api, talk: Talk) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    call: Any = {"method": "POST", "path": f"{talk.path}/mcp", "json": ping, "key": talk.key}
    problem = await api.problem(400, "validation_error", **call)
    assert problem["field"] == "Mcp-Session-Id"
    for conversation in ("x", "0" * 32, "x" * 4000):
        await api.problem(404, "not_found", **call, headers={"Mcp-Session-Id": conversation})
    version = {"Mcp-Session-Id": talk.id, "MCP-Protocol-Version": "1999-01-01"}
    problem = await api.problem(400, "validation_error", **call, headers=version)
    assert problem["field"] == "MCP-Protocol-Version"
    await api.problem(
        400, "validation_error", **call | {"json": {"jsonrpc": "2.0", "method": "initialize"}}
    )


@pytest.mark.slow
async def test_any_parameters_are_answered(
    api: Api, talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the parameters are: an answer, no failure of ours, and nothing runs."""
    cases: list[tuple[str, Any]] = []

    @settings(max_examples=40, suppress_health_check=list(HealthCheck), database=None)
    @given(METHODS, st.dictionaries(st.text(max_size=8), JSON_VALUES, max_size=3) | KNOWN, NAMES)
    def generate(method: str, params: dict[str, Any], name: str) -> None:
        cases.append((method, params))
        cases.append(("tools/call", {"name": name, "arguments": params, "_meta": params}))

    generate()
    for method, params in cases:
        response = await talk.post({"id": 1, "method": method, "params": params})
        assert response.status in (200, 400), (method, params)
        assert "internal_error" not in await response.text(), (method, params)
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
    starts = await talk.events("command.start")
    assert not [event for event in starts if event["decision"] == "allow"]
    assert (await talk.ask("ping"))["result"] == {}


@given(JSON_VALUES)
def test_parameters_of_any_kind(value: Any) -> None:
    assert negotiated(value).startswith("2025-")
    found = request_id(value)
    assert found is None or (found == value and not isinstance(found, bool))
    for read, kind in ((text_parameter, str), (object_parameter, dict)):
        if kind is dict and value is None:
            assert read({"it": value}, "it") == {}
        elif isinstance(value, kind):
            assert read({"it": value}, "it") == value
        else:
            with pytest.raises(McpError, match="must be"):
                read({"it": value}, "it")
