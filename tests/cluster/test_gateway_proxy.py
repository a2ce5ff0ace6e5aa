"""What passes through a gateway, with nodes that are small servers."""

import asyncio
import gzip
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import (
    ClientPayloadError,
    ClientResponse,
    ClientSession,
    ServerDisconnectedError,
    WSMsgType,
    web,
)

from gateway.limits import GATEWAY_LIMITS
from orchestrator.cluster.directory import Hold
from orchestrator.rules.access.keys import KeyRing, Principal, Role, digest
from tests.support.box import PATIENCE
from tests.support.fake_cluster import FakeCluster, fake_cluster
from tests.support.until import until


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with fake_cluster() as made:
        yield made


@pytest.fixture
async def client() -> AsyncIterator[ClientSession]:
    async with ClientSession(auto_decompress=False) as made:
        yield made


async def _echo(request: web.Request) -> web.StreamResponse:
    """Tells what has arrived."""
    return web.json_response(
        {
            "method": request.method,
            "target": request.raw_path,
            "headers": [[name, value] for name, value in request.headers.items()],
            "body": (await request.read()).decode("latin-1"),
        }
    )


def _named(name: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"node": name})

    return answer


async def test_a_request_goes_through_as_it_is(cluster: FakeCluster, client: ClientSession) -> None:
    await cluster.serve("one", _echo)
    cluster.puts("web", "one")
    target = "/api/sessions/web/files/a%2Fb//../c?x=%20y&z=%E2%82%AC"
    async with client.put(
        f"{cluster.url}{target}",
        data=b"\0\xff body",
        headers={
            "Authorization": "Bearer key",
            "Host": "paddock.example:8443",
            "Origin": "https://page.example",
            "Cookie": "a=b",
            "If-Match": '"1"',
            "Connection": "X-Mine, Authorization",
            "X-Mine": "for this hop",
            "X-Forwarded-For": "6.6.6.6",
            "X-Forwarded-Host": "evil",
            "Forwarded": "for=6.6.6.6",
            "X-Real-IP": "6.6.6.6",
            "TE": "trailers",
        },
    ) as answer:
        told = await answer.json()
    headers = {name.lower(): value for name, value in told["headers"]}
    assert told["method"] == "PUT"
    assert told["body"] == "\0\xff body"
    assert headers["authorization"] == "Bearer key"
    assert headers["host"] == "paddock.example:8443"
    assert headers["origin"] == "https://page.example"
    assert headers["cookie"] == "a=b"
    assert headers["if-match"] == '"1"'
    assert headers["x-forwarded-for"] == "127.0.0.1"
    assert headers["x-forwarded-proto"] == "http"
    assert not {"x-mine", "x-forwarded-host", "forwarded", "x-real-ip", "te"} & headers.keys()
    names = [name.lower() for name, _ in told["headers"]]
    assert len(names) == len(set(names))
    assert told["target"].endswith("?x=%20y&z=%E2%82%AC"), told["target"]
    assert told["target"].startswith("/api/sessions/web/files/a%2Fb/"), told["target"]


async def test_the_gateway_adds_no_credential(cluster: FakeCluster, client: ClientSession) -> None:
    await cluster.serve("one", _echo)
    cluster.puts("web", "one")
    async with client.get(f"{cluster.url}/api/sessions/web") as answer:
        told = await answer.json()
    assert "authorization" not in {name.lower() for name, _ in told["headers"]}


async def test_an_answer_comes_back_as_it_is(cluster: FakeCluster, client: ClientSession) -> None:
    packed = gzip.compress(b"text" * 1000)

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(
            status=418,
            body=packed,
            headers=[
                *(("Content-Encoding", "gzip"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")),
                *(("Keep-Alive", "timeout=1"), ("X-Request-Id", "of-the-node")),
            ],
        )

    await cluster.serve("one", answer)
    cluster.puts("web", "one")
    async with client.get(f"{cluster.url}/api/sessions/web") as got:
        assert got.status == 418
        assert await got.read() == packed
        assert got.headers["Content-Length"] == str(len(packed))
        assert got.headers.getall("Set-Cookie") == ["a=1", "b=2"]
        assert got.headers["X-Request-Id"] == "of-the-node"
        assert "Keep-Alive" not in got.headers
    async with client.head(f"{cluster.url}/api/sessions/web") as got:
        assert (got.status, got.headers["Content-Length"]) == (418, str(len(packed)))


async def test_sessions_are_looked_up_once(cluster: FakeCluster, client: ClientSession) -> None:
    for name in ("one", "two"):
        await cluster.serve(name, _named(name))
    cluster.puts("web", "one")
    cluster.puts("other", "two")
    for path, name in (
        ("/api/sessions/web", "one"),
        ("/api/sessions/WEB/exec", "one"),
        ("/api/sessions/w%65b/mcp", "one"),
        ("/compat/swerex/web/is_alive", "one"),
        ("/compat/openhands/other/alive", "two"),
        ("/compat/e2b/sandboxes/other-paddock", "two"),
        ("/compat/e2b/v2/sandboxes/web/connect", "one"),
    ):
        async with client.get(cluster.url + path) as answer:
            assert await answer.json() == {"node": name}, path
    assert cluster.directory.looked_up == {"web": 1, "other": 1}
    async with client.get(
        f"{cluster.url}/compat/e2b/files?path=x", headers={"E2b-Sandbox-Id": "other"}
    ) as answer:
        assert await answer.json() == {"node": "two"}


async def test_a_ticket_is_of_its_sessions_node(
    cluster: FakeCluster, client: ClientSession
) -> None:
    await cluster.serve("one", _named("one"))
    await cluster.serve("two", _echo)
    cluster.puts("web", "two")
    async with client.post(f"{cluster.url}/api/tickets", json={"session_id": "web"}) as answer:
        assert json.loads((await answer.json())["body"]) == {"session_id": "web"}


async def test_a_session_that_moved_is_found_again(
    cluster: FakeCluster, client: ClientSession
) -> None:
    async def has_not(request: web.Request) -> web.StreamResponse:
        return web.json_response({"code": "not_found"}, status=404)

    await cluster.serve("one", has_not)
    await cluster.serve("two", _named("two"))
    cluster.puts("web", "one")
    async with client.get(f"{cluster.url}/api/sessions/web") as answer:
        assert answer.status == 404
    cluster.puts("web", "two")
    async with client.get(f"{cluster.url}/api/sessions/web") as answer:
        assert await answer.json() == {"node": "two"}
    # A short body is sent again, because nothing was done with it.
    cluster.gateway.routes.learn("web", "one")
    async with client.post(f"{cluster.url}/api/sessions/web/exec", json={}) as answer:
        assert await answer.json() == {"node": "two"}
    # A long one has passed: the caller asks again.
    cluster.gateway.routes.learn("web", "one")
    long = {"command": "x" * 40_000}
    async with client.post(f"{cluster.url}/api/sessions/web/exec", json=long) as answer:
        assert answer.status == 503
        assert (await answer.json())["code"] == "node_unavailable"
    async with client.post(f"{cluster.url}/api/sessions/web/exec", json=long) as answer:
        assert await answer.json() == {"node": "two"}


@pytest.mark.parametrize("status", [404, 410])
async def test_what_a_session_has_not_is_said_once(
    cluster: FakeCluster, client: ClientSession, status: int
) -> None:
    """A process that is unknown, say: the session is where it was, and the answer is its node's."""
    asked = 0

    async def has_not(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        problem = {"code": "not_found", "detail": "no process x", "body": await request.text()}
        return web.json_response(problem, status=status, headers={"X-Said": "by the node"})

    await cluster.serve("one", has_not)
    cluster.puts("web", "one")
    for times in (1, 2):
        path = f"{cluster.url}/api/sessions/web/processes/x/stdin"
        async with client.post(path, json={"data": "x"}) as answer:
            assert answer.status == status
            assert answer.headers["X-Said"] == "by the node"
            assert (await answer.json())["body"] == '{"data": "x"}'
        assert asked == times


async def test_what_no_node_has_any_node_says(cluster: FakeCluster, client: ClientSession) -> None:
    await cluster.serve("one", _named("one"))
    for path in (
        "/",
        "/docs",
        "/api/images",
        "/api/keys",
        "/api/sessions/unknown",
        "/api/sessions/%00",
    ):
        async with client.get(cluster.url + path) as answer:
            assert await answer.json() == {"node": "one"}, path
    for path in ("/api/memory", "/api/hooks", "/api/secrets"):
        async with client.get(cluster.url + path) as answer:
            assert await answer.json() == {"node": "one"}, path
    for path in ("/api/volumes", "/api/usage", "/compat/e2b/sandboxes"):
        async with client.get(cluster.url + path) as answer:
            assert answer.status == 404, path


async def test_a_node_that_can_not_be_reached(cluster: FakeCluster, client: ClientSession) -> None:
    await cluster.serve("one", _named("one"))
    cluster.puts("web", "one")
    await cluster.servers["one"].close()
    async with client.get(f"{cluster.url}/api/sessions/web") as answer:
        assert answer.status == 503
        assert answer.headers["Retry-After"] == "2"
        assert (await answer.json())["code"] == "node_unavailable"
    cluster.directory.dies("one")
    await cluster.gateway.members.refresh()
    async with client.get(f"{cluster.url}/api/sessions/web") as answer:
        assert (answer.status, (await answer.json())["node"]) == (503, "one")


async def test_a_node_that_goes_away_after_the_request(
    cluster: FakeCluster, client: ClientSession
) -> None:
    async def drop(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    await cluster.serve("one", drop)
    cluster.puts("web", "one")
    async with client.post(f"{cluster.url}/api/sessions/web/exec", json={}) as answer:
        assert answer.status == 502
        assert "Retry-After" not in answer.headers
        assert (await answer.json())["code"] == "node_unavailable"


@pytest.mark.parametrize("framing", ["chunked", "length"])
@pytest.mark.parametrize("end", ["abort", "close"])
async def test_an_answer_that_breaks_is_no_answer_that_ends(
    cluster: FakeCluster, client: ClientSession, framing: str, end: str
) -> None:
    async def begins(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        if framing == "length":
            response.content_length = 1_000_000
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        assert request.transport is not None
        if end == "abort":
            request.transport.abort()
        else:
            request.transport.close()
        return response

    await cluster.serve("one", begins)
    cluster.puts("web", "one")
    async with client.get(f"{cluster.url}/api/sessions/web/events") as answer:
        with pytest.raises((ClientPayloadError, ConnectionError, ServerDisconnectedError)):
            await answer.read()


async def test_a_short_answer_that_breaks_has_not_begun(
    cluster: FakeCluster, client: ClientSession
) -> None:
    async def begins(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_length = 1000
        await response.prepare(request)
        await response.write(b"data")
        assert request.transport is not None
        request.transport.close()
        return response

    await cluster.serve("one", begins)
    cluster.puts("web", "one")
    async with client.get(f"{cluster.url}/api/sessions/web") as answer:
        assert (answer.status, (await answer.json())["code"]) == (502, "node_unavailable")


async def test_streams_end_with_the_nodes_lease(
    cluster: FakeCluster, client: ClientSession
) -> None:
    begun = asyncio.Event()

    async def hangs(request: web.Request) -> web.StreamResponse:
        begun.set()
        if request.path.endswith("events"):
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"data: 1\n\n")
        await asyncio.Event().wait()
        return web.Response()

    await cluster.serve("one", hangs)
    cluster.puts("web", "one")
    async with (
        asyncio.timeout(PATIENCE),
        client.get(f"{cluster.url}/api/sessions/web/events") as stream,
    ):
        assert await stream.content.readany() == b"data: 1\n\n"
        begun.clear()
        waits = asyncio.ensure_future(client.get(f"{cluster.url}/api/sessions/web"))
        await begun.wait()
        cluster.directory.dies("one")
        await cluster.gateway.members.refresh()
        with pytest.raises((ClientPayloadError, ConnectionError)):
            await stream.read()
        answer = await waits
        assert answer.status == 502
        answer.release()


async def test_who_leaves_takes_the_request_along(
    cluster: FakeCluster, client: ClientSession
) -> None:
    begun, left = asyncio.Event(), asyncio.Event()

    async def hangs(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        begun.set()
        try:
            while True:
                await response.write(b": still\n\n")
                await asyncio.sleep(0)
        finally:
            left.set()

    await cluster.serve("one", hangs)
    cluster.puts("web", "one")
    async with asyncio.timeout(PATIENCE):
        async with client.get(f"{cluster.url}/api/sessions/web/events"):
            await begun.wait()
        await left.wait()


async def test_a_body_that_does_not_arrive_whole(cluster: FakeCluster) -> None:
    got: list[bytes] = []
    begun, ended = asyncio.Event(), asyncio.Event()

    async def reads(request: web.Request) -> web.StreamResponse:
        try:
            async for piece in request.content.iter_any():
                got.append(piece)
                begun.set()
        finally:
            ended.set()
        got.append(b"THE END")
        return web.Response()

    await cluster.serve("one", reads)
    cluster.puts("web", "one")
    _, writer = await asyncio.open_connection("127.0.0.1", cluster.server.port)
    writer.write(
        b"PUT /api/sessions/web/files/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"40000\r\n" + bytes(0x20000)
    )
    async with asyncio.timeout(PATIENCE):
        await begun.wait()
        writer.transport.abort()
        await ended.wait()
    assert b"THE END" not in got


async def test_websockets_go_both_ways(cluster: FakeCluster, client: ClientSession) -> None:
    async def echo(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=("paddock.terminal",))
        await socket.prepare(request)
        async for message in socket:
            if message.type is WSMsgType.TEXT and message.data == "leave":
                await socket.close(code=4001, message=b"as asked")
            elif message.type is WSMsgType.TEXT and message.data == "break":
                assert request.transport is not None
                request.transport.abort()
            elif message.type is WSMsgType.BINARY:
                await socket.send_bytes(message.data)
            else:
                headers = request.headers.getall("Sec-WebSocket-Protocol")
                await socket.send_str(f"{message.data} {headers}")
        return socket

    await cluster.serve("one", echo)
    cluster.puts("web", "one")
    url = f"{cluster.url}/api/sessions/web/terminal"
    protocols = ("paddock.terminal", "ticket.abc")
    async with client.ws_connect(url, protocols=protocols, max_msg_size=0) as socket:
        assert socket.protocol == "paddock.terminal"
        await socket.send_str("hello")
        assert await socket.receive_str() == "hello ['paddock.terminal,ticket.abc']"
        await socket.send_bytes(bytes(2**20))
        assert await socket.receive_bytes() == bytes(2**20)
        await socket.send_str("leave")
        message = await socket.receive()
        assert (message.type, message.data, message.extra) == (WSMsgType.CLOSE, 4001, "as asked")
    async with client.ws_connect(url) as socket:
        await socket.send_str("break")
        message = await socket.receive()
        assert message.type in (WSMsgType.CLOSED, WSMsgType.ERROR, WSMsgType.CLOSING)
        assert socket.close_code in (1006, None)


async def test_creations_are_placed(cluster: FakeCluster, client: ClientSession) -> None:
    bodies: dict[str, list[bytes]] = {"full": [], "free": []}

    async def full(request: web.Request) -> web.StreamResponse:
        bodies["full"].append(await request.read())
        return web.json_response({"code": "capacity_exhausted"}, status=503)

    async def free(request: web.Request) -> web.StreamResponse:
        bodies["free"].append(await request.read())
        return web.json_response({}, status=201, headers={"Location": "/api/sessions/new"})

    await cluster.serve("full", full)
    await cluster.serve("free", free, used=_amounts(20))
    async with client.post(f"{cluster.url}/api/sessions", data=b'{"a": 1}') as answer:
        assert answer.status == 201
    (sent,) = bodies["free"]
    # The id is made here, once for all nodes that are asked.
    assert sent == bodies["full"][0]
    made = json.loads(sent)
    assert re.fullmatch("sess-[0-9a-f]{16}", made.pop("id"))
    assert made == {"a": 1}
    async with client.get(f"{cluster.url}/api/sessions/new") as answer:
        assert answer.status == 201
    assert not cluster.directory.looked_up
    # A kept workspace, and a session that it shall be near, decide alone.
    cluster.puts("kept", "full", Hold.WORKSPACE)
    for body in ({"id": "kept"}, {"placement": {"near": "kept"}}):
        async with client.post(f"{cluster.url}/api/sessions", json=body) as answer:
            assert answer.status == 503
    assert len(bodies["free"]) == 2
    async with client.put(f"{cluster.url}/api/sessions/named", json={}) as answer:
        assert answer.status == 201


def _amounts(sandboxes: int) -> object:
    from orchestrator.cluster.base import Amounts

    return Amounts(0.0, 0, sandboxes)


async def test_a_refused_creation_says_why(cluster: FakeCluster, client: ClientSession) -> None:
    async def full(request: web.Request) -> web.StreamResponse:
        return web.json_response({"code": "capacity_exhausted"}, status=503)

    for name in ("one", "two", "three", "four"):
        await cluster.serve(name, full)
    await cluster.serve("five", full, labels={"zone": "b"}, state="draining")
    async with client.post(f"{cluster.url}/api/sessions", json={}) as answer:
        found = await answer.json()
    assert (answer.status, found["code"]) == (503, "capacity_exhausted")
    assert "3 refused it (capacity_exhausted), 1 take no new sessions" in found["detail"]
    placed = {"placement": {"labels": {"zone": "c"}}}
    async with client.post(f"{cluster.url}/api/sessions", json=placed) as answer:
        assert "4 have other labels" in (await answer.json())["detail"]


async def test_a_creation_that_nodes_refuse_without_the_database_says_so(
    cluster: FakeCluster, client: ClientSession
) -> None:
    """And not that they are full."""

    async def without(request: web.Request) -> web.StreamResponse:
        return web.json_response({"code": "cluster_unavailable"}, status=503)

    for name in ("one", "two"):
        await cluster.serve(name, without)
    async with client.post(f"{cluster.url}/api/sessions", json={}) as answer:
        found = await answer.json()
    assert (answer.status, found["code"]) == (503, "cluster_unavailable")
    assert answer.headers["Retry-After"] == "3"
    assert "2 refused it (cluster_unavailable)" in found["detail"]


async def test_a_creation_is_asked_once_if_its_node_is_lost(
    cluster: FakeCluster, client: ClientSession
) -> None:
    asked: list[str] = []

    async def drop(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    for name in ("one", "two"):
        await cluster.serve(name, drop)
    async with client.post(f"{cluster.url}/api/sessions", json={}) as answer:
        assert answer.status == 502
        found = await answer.json()
    assert len(asked) == 1
    # The client learns the id that it has not chosen.
    assert re.fullmatch("sess-[0-9a-f]{16}", found["session_id"])
    assert found["session_id"] in found["detail"]


async def test_what_nodes_do_not_know_they_say_themselves(
    cluster: FakeCluster, client: ClientSession
) -> None:
    await cluster.serve("one", _echo)
    for body in (b"[", b'{"id": 7, "permission_level": "none of these"}', b"[1]", b""):
        async with client.post(f"{cluster.url}/api/sessions", data=body) as answer:
            assert (await answer.json())["body"].encode() == body


async def test_without_the_database(cluster: FakeCluster, client: ClientSession) -> None:
    await cluster.serve("one", _named("one"))
    cluster.puts("web", "one")
    async with client.get(f"{cluster.url}/api/sessions/web") as answer:
        assert answer.status == 200
    cluster.directory.away = True
    await cluster.gateway.members.refresh()
    async with client.get(f"{cluster.url}/api/sessions/web") as answer:
        assert answer.status == 200
    async with client.get(f"{cluster.url}/api/sessions/another") as answer:
        assert (answer.status, (await answer.json())["code"]) == (503, "cluster_unavailable")
    async with client.get(f"{cluster.url}/readyz") as answer:
        assert answer.status == 200
        assert "does not answer" in (await answer.json())["checks"]["database"]


def _bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"} if secret else {}


async def _get(client: ClientSession, url: str, secret: str) -> ClientResponse:
    return await client.get(url, headers=_bearer(secret))


async def test_what_one_caller_may_have_open() -> None:
    """Who is known counts for themselves; what could be invented for each request, by address."""
    begun = asyncio.Semaphore(0)

    async def hangs(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/status"):
            return web.Response(
                status=200 if request.headers.get("Authorization") == "Bearer handle" else 401
            )
        begun.release()
        await asyncio.Event().wait()
        return web.Response()

    keys = KeyRing({digest("key"): Principal("ann", Role.OPERATOR)})
    limits = GATEWAY_LIMITS._replace(of_credential=3, of_address=2)
    async with fake_cluster(limits=limits, keys=keys) as cluster, ClientSession() as client:
        await cluster.serve("one", hangs)
        cluster.puts("web", "one")
        url = f"{cluster.url}/api/sessions/web"

        async def hold(*secrets: str) -> list[asyncio.Task[ClientResponse]]:
            held = [asyncio.create_task(_get(client, url, secret)) for secret in secrets]
            async with asyncio.timeout(PATIENCE):
                for _ in held:
                    await begun.acquire()
            return held

        async def refuses(*secrets: str) -> None:
            for secret in secrets:
                async with client.get(url, headers=_bearer(secret)) as answer:
                    assert (answer.status, (await answer.json())["code"]) == (429, "rate_limited")

        held = await hold("", "invented")
        await refuses("", "invented", "another", "handle")
        # A key of the cluster is known before a node has seen it.
        held += await hold("key", "key", "key")
        await refuses("key")
        held.pop(0).cancel()
        await until(lambda: cluster.gateway.open_requests.total == len(held))
        async with client.get(f"{url}/status", headers=_bearer("handle")) as answer:
            assert answer.status == 200
        held += await hold("")
        # A handle is, once a node has let it in; what else is behind its address takes no place.
        await refuses("", "third")
        held += await hold("handle", "handle", "handle")
        await refuses("handle", "key", "third")
        for each in held:
            each.cancel()
        await asyncio.gather(*held, return_exceptions=True)


async def test_who_is_let_in_makes_room_for_others_of_the_address() -> None:
    """Also while its request is open: many streams of handles begin behind one address."""

    async def streams(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"begun")
        await asyncio.Event().wait()
        return response

    limits = GATEWAY_LIMITS._replace(of_address=1)
    async with fake_cluster(limits=limits) as cluster, ClientSession() as client:
        await cluster.serve("one", streams)
        cluster.puts("web", "one")
        opened: list[ClientResponse] = []
        for path, status in (
            *[("/api/sessions/web/events", 200)] * 3,
            # Here a node may answer without a credential, so nothing is proved by it.
            *(("/compat/swerex/web/is_alive", 200), ("/compat/swerex/web/is_alive", 429)),
        ):
            headers = {"Authorization": f"Bearer {len(opened)}"}
            answer = await client.get(f"{cluster.url}{path}", headers=headers)
            assert answer.status == status
            opened.append(answer)
        for answer in opened:
            answer.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET http://other/api HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /api/sessions/web HTTP/1.1\r\n\r\n",
        b"GET /api/sessions/web HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /api/sessions/\xe2\x82\xac HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /api/sessions/web HTTP/1.1\r\nHost: a\r\nX: \xff\r\n\r\n",
        b"GET /api/sessions/web HTTP/1.1\r\nHost: a\r\n X: folded\r\n\r\n",
        b"GET /api/sessions/web HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n",
        b"GET /api/sessions/web HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 9000 + b"\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /api/sessions/web HTTP/1.1\r\nHost: a\r\n" + b"X: a\r\n" * 200 + b"\r\n",
        b"POST /api/sessions/web HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /api/sessions/web HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
        b"Content-Length: 6\r\n\r\nhello",
        b"POST /api/sessions/web HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n",
        b"POST /api/sessions/web HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello",
        b"\x16\x03\x01\x00\x00",
    ],
    ids=lambda sent: sent[:60].decode("latin-1"),
)
async def test_what_is_no_request_reaches_no_node(cluster: FakeCluster, sent: bytes) -> None:
    reached: list[str] = []

    async def records(request: web.Request) -> web.StreamResponse:
        reached.append(request.raw_path)
        return web.Response()

    await cluster.serve("one", records)
    cluster.puts("web", "one")
    reader, writer = await asyncio.open_connection("127.0.0.1", cluster.server.port)
    writer.write(sent)
    async with asyncio.timeout(PATIENCE):
        line = await reader.readline()
    writer.transport.abort()
    assert line.split()[1:2] in ([b"400"], [b"421"], [b"413"], [b"431"], [b"404"]), line
    assert not reached
