"""Runs over a WebSocket, with a fake agent and a scripted model."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, cast
from unittest.mock import Mock

import pytest
import pytest_asyncio
from aiohttp import ClientWebSocketResponse, WSMsgType, WSServerHandshakeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.http import run_socket
from api.http.sockets import send
from orchestrator.ground.serving import stream
from orchestrator.rules.access.keys import KeyRing, Principal, Role, digest
from orchestrator.settings.operator_models import OperatorModel
from paddock import Paddock, Run, RunText, ValidationError
from paddock.contract.run_sockets import RunSocketFrame
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, OTHER_KEY, Api
from tests.support.box import PATIENCE
from tests.support.models import Answer, ModelServer, calling, model_server
from tests.support.until import until

PATH = "/api/sessions/web/run"
GO = {"type": "run", "session_id": "web", "input": "go"}
READ = ("read_file", {"path": "README.md"})


@pytest_asyncio.fixture
async def model(api: Api) -> AsyncIterator[ModelServer]:
    async with model_server() as server:
        api.plane.models.configured["small"] = OperatorModel.model_validate(server.setting())
        await api.session(id="web", key=OPERATOR_KEY)
        api.agent.files["README.md"] = b"hello\n"
        yield server


@asynccontextmanager
async def opened(
    api: Api, key: str | None = OPERATOR_KEY, **options: Any
) -> AsyncIterator[ClientWebSocketResponse]:
    headers = dict(options.pop("headers", {}))
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    url = api.server.make_url(PATH)
    async with api.client.session.ws_connect(url, headers=headers, **options) as socket:
        yield socket


async def told(socket: ClientWebSocketResponse) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        found: dict[str, Any] = await socket.receive_json()
    RunSocketFrame.model_validate(found)
    return found


async def run(socket: ClientWebSocketResponse, **members: Any) -> list[dict[str, Any]]:
    """The events up to the last one of a frame."""
    await socket.send_json(GO | members)
    events = [await told(socket)]
    while events[-1]["event"] not in ("end", "error", "refused"):
        events.append(await told(socket))
    return events


async def refused(api: Api, **options: Any) -> int:
    with pytest.raises(WSServerHandshakeError) as failure:
        async with opened(api, **options):
            pass
    return failure.value.status


async def closed(socket: ClientWebSocketResponse) -> int | None:
    async with asyncio.timeout(PATIENCE):
        while (await socket.receive()).type in (WSMsgType.TEXT, WSMsgType.BINARY):
            pass
    return socket.close_code


async def state(api: Api) -> tuple[Any, ...]:
    """What a refused frame may not change."""
    shown = await api.json("GET", "/api/sessions/web/settings")
    turns = await api.json("GET", "/api/sessions/web/turns")
    session = api.plane.sessions.registry.get("web")
    assert session is not None
    waiting = await api.plane.turns.queue.waiting(session.key)
    timeline = await api.json("GET", "/api/sessions/web/timeline")
    return shown, turns, waiting, timeline


async def test_one_run_after_another(api: Api, model: ModelServer) -> None:
    model.answers = [calling(READ, text="I look."), Answer("It says hello.")]
    async with opened(api) as socket:
        events = await run(socket)
        names = [each["event"] for each in events if each["event"] != "text"]
        assert names == ["start", "tick", "tool_call", "tool_result", "tick", "end"]
        assert [each["id"] for each in events[1:-1]] == list(range(1, len(events) - 1))
        assert events[-1]["data"]["text"] == "It says hello."
        again = await run(socket, permission_level="low", model="small", max_ticks=1)
        assert again[-1]["data"]["turn_number"] == 2
        assert again[-1]["data"]["permission_level"] == "low"
    # The level is persisted: P16.
    shown = await api.json("GET", "/api/sessions/web/settings")
    assert shown["permission_level"] == "low"
    session = api.plane.sessions.registry.get("web")
    assert session is not None
    await until(lambda: session.streams.total() == 0)


@pytest.mark.parametrize(
    ("members", "field", "detail"),
    [
        ({"permission_level": "LOW"}, "permission_level", "must be low|medium|high"),
        ({"permission_level": "root"}, "permission_level", "must be low|medium|high"),
        ({"permission_level": 1}, "permission_level", "must be low|medium|high"),
        ({"session_id": "other"}, "session_id", "of the address"),
        ({"type": "stop"}, "type", ""),
        ({"input": ""}, "input", ""),
        ({"input": "x" * 65_537}, "input", "65536"),
        ({"input": "a\0b"}, "input", "NUL"),
        ({"model": "absent"}, "model", "small"),
        ({"max_ticks": 101}, "max_ticks", ""),
        ({"more": 1}, "more", ""),
    ],
)
async def test_a_frame_that_is_not_valid_changes_nothing(
    api: Api, model: ModelServer, members: dict[str, Any], field: str, detail: str
) -> None:
    before = await state(api)
    async with opened(api) as socket:
        (only,) = await run(socket, **members)
        assert (only["event"], only["data"]["code"]) == ("refused", "validation_error")
        assert only["data"]["field"].rpartition(".")[2] == field
        assert detail in only["data"]["detail"]
        assert await state(api) == before
        assert model.bodies == []
        # The socket is still of use.
        assert (await run(socket))[-1]["event"] == "end"


FRAMES = st.one_of(
    st.text(max_size=200),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
        max_leaves=8,
    ).map(json.dumps),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["run", "Run", 1, None]), "input": st.text() | st.integers()},
        optional={
            "session_id": st.just("web") | st.text(max_size=5),
            "permission_level": st.sampled_from(["", "LOW", "high ", 0, [], {"a": "low"}]),
            "max_ticks": st.integers(max_value=0) | st.text(max_size=3),
            "else": st.none(),
        },
    )
    .filter(lambda frame: len(frame) > 3 or "session_id" not in frame)
    .map(json.dumps),
)


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(frames=st.lists(FRAMES, min_size=1, max_size=8))
async def test_no_text_does_harm(frames: list[str], api: Api, model: ModelServer) -> None:
    before = await state(api)
    async with opened(api, ADMIN_KEY) as socket:
        for frame in frames:
            await socket.send_str(frame)
            answer = await told(socket)
            assert answer["event"] == "refused"
            assert answer["data"]["code"] == "validation_error"
            assert "Traceback" not in str(answer)
    assert await state(api) == before
    assert model.bodies == []


async def test_a_run_goes_on_alone_and_without_its_socket(api: Api, model: ModelServer) -> None:
    model.answers = [Answer("so far", hangs=True), Answer("done")]
    async with opened(api) as socket:
        await socket.send_json(GO)
        assert (await told(socket))["event"] == "start"
        await until(lambda: len(model.bodies) == 1)
        await socket.send_json(GO | {"input": "more", "permission_level": "low"})
        while (answer := await told(socket))["event"] != "refused":
            pass
        assert answer["data"]["code"] == "busy"
        # A frame that is refused is neither queued nor does it change the level.
        assert (await state(api))[0]["permission_level"] == "medium"
        async with opened(api) as other:
            await other.send_json(GO | {"input": "joined"})
            assert (await told(other))["event"] == "start"
            assert (await told(other))["data"] == {"tick": 1}
    session = api.plane.sessions.registry.get("web")
    assert session is not None
    await until(lambda: session.streams.total() == 0)
    assert api.plane.turns.running_number(session) == 1
    await api.json("POST", "/api/sessions/web/interrupt")
    await until(lambda: api.plane.turns.running(session.key) is None)
    async with opened(api) as socket:
        ended = (await run(socket))[-1]["data"]
    assert (ended["text"], ended["turn_number"]) == ("done", 2)
    said = [each["content"] for each in model.bodies[-1]["messages"] if each["role"] == "user"]
    assert said == ["go", "joined", "go"]


async def test_a_page_needs_a_ticket_and_its_own_origin(api: Api, model: ModelServer) -> None:
    body = {"session_id": "web"}
    made = await api.json("POST", "/api/tickets", json=body, key=OPERATOR_KEY, status=201)
    protocols = ("paddock.run", f"ticket.{made['ticket']}")
    own = {"Origin": str(api.server.make_url("/")).rstrip("/")}
    async with opened(api, None, protocols=protocols, headers=own) as socket:
        assert socket.protocol == "paddock.run"
        assert (await run(socket))[-1]["event"] == "end"
    assert await refused(api, key=None, protocols=protocols) == 401
    assert await refused(api, headers={"Origin": "https://evil.example"}) == 403
    assert await refused(api, key=OTHER_KEY) == 404
    assert await refused(api, key=None) == 401
    await api.problem(400, "validation_error", "GET", PATH, key=OPERATOR_KEY)
    await api.json("DELETE", "/api/sessions/web", key=OPERATOR_KEY)
    assert await refused(api) == 410


async def test_a_handle_sends_messages_and_no_level(api: Api, model: ModelServer) -> None:
    rotated = await api.json("POST", "/api/sessions/web/handle", key=OPERATOR_KEY)
    async with opened(api, rotated["handle"]) as socket:
        assert (await run(socket))[-1]["event"] == "end"
        before = await state(api)
        (only,) = await run(socket, permission_level="low")
        assert (only["event"], only["data"]["code"]) == ("refused", "permission_denied")
        assert await state(api) == before


async def test_a_socket_ends_with_its_key(api: Api, model: ModelServer) -> None:
    model.answers = [Answer("so far", hangs=True)]
    async with opened(api) as socket:
        await socket.send_json(GO)
        assert (await told(socket))["event"] == "start"
        api.plane.keys.replace(KeyRing({digest(ADMIN_KEY): Principal("admin", Role.ADMIN)}))
        assert await closed(socket) == 1001


@pytest.mark.parametrize(("frame", "code"), [(b"go", 1003), ("x" * 700_000, 1009)])
async def test_what_closes_a_socket(
    api: Api, model: ModelServer, frame: bytes | str, code: int
) -> None:
    async with opened(api) as socket:
        if isinstance(frame, bytes):
            await socket.send_bytes(frame)
        else:
            await socket.send_str(frame)
        assert await closed(socket) == code


async def test_only_an_idle_socket_is_closed(
    api: Api, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_socket, "IDLE_SECONDS", 0.1)
    model.answers = [Answer("so far", hangs=True)]
    async with opened(api) as idle:
        assert await closed(idle) == 1000
    monkeypatch.setattr(run_socket, "IDLE_SECONDS", 60.0)
    async with opened(api) as socket:
        monkeypatch.setattr(run_socket, "IDLE_SECONDS", 0.1)
        await socket.send_json(GO)
        await until(lambda: len(model.bodies) == 1)
        await api.json("POST", "/api/sessions/web/interrupt")
        while (await told(socket))["event"] != "end":
            pass
        assert await closed(socket) == 1000


async def test_a_client_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        async def send_str(self, _: str) -> None:
            await asyncio.Event().wait()

    transport = Mock()
    monkeypatch.setattr(stream, "WRITE_SECONDS", 0.01)
    with pytest.raises(ConnectionResetError, match="does not read"):
        await send(Mock(transport=transport), cast(Any, Full()), "text")
    transport.abort.assert_called_once_with()


async def test_the_client_s_socket(api: Api, model: ModelServer) -> None:
    async with Paddock(f"http://127.0.0.1:{api.server.port}", OPERATOR_KEY) as paddock:
        session = await paddock.sessions.get("web")
        socket = await session.run_socket()
        events = [event async for event in socket.run("hello")]
        assert isinstance(events[-1], Run)
        assert "".join(each.text for each in events if isinstance(each, RunText)) == "done"
        with pytest.raises(ValidationError, match="permission_level must be low"):
            _ = [event async for event in socket.run("x", permission_level="root")]
        # A run that is left is skipped before the next one.
        async with aclosing(socket.run("left")) as left:
            await anext(left)
        last = [event async for event in socket.run("and?", max_ticks=2)][-1]
        assert isinstance(last, Run)
        assert last.turn_number == 3
        await socket.close()
