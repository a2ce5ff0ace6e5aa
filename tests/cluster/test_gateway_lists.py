"""Lists of a gateway over nodes that are small servers: what is there, in order, and who is not."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientSession, web

from gateway.faces.positions import Position, Positions, Series
from tests.support.faced_cluster import (
    ADMIN,
    OPERATOR,
    VIEWER,
    FacedCluster,
    faced_cluster,
    moment,
)

MIB = 2**20


@pytest.fixture
async def faced() -> AsyncIterator[FacedCluster]:
    async with faced_cluster() as made:
        yield made


@pytest.fixture
async def impatient() -> AsyncIterator[FacedCluster]:
    """It waits half a second for its nodes."""
    async with faced_cluster(seconds=0.5) as made:
        yield made


@pytest.fixture
async def client() -> AsyncIterator[ClientSession]:
    async with ClientSession(headers=ADMIN) as made:
        yield made


async def _get(
    client: ClientSession, faced: FacedCluster, path: str, code: Any = 200, **query: Any
) -> dict[str, Any]:
    async with client.get(f"{faced.url}{path}", params=query) as answer:
        assert answer.status == code, await answer.text()
        found: dict[str, Any] = await answer.json(content_type=None)
        return found


async def _pages(
    client: ClientSession, faced: FacedCluster, path: str, limit: int
) -> list[dict[str, Any]]:
    pages: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        pages.append(await _get(client, faced, path, limit=limit, **cursor))
        following = pages[-1]["next"]
        if following is None:
            return pages
        cursor = {"cursor": following}


# Sessions.


async def test_sessions_of_all_nodes_are_one_list_in_order(
    faced: FacedCluster, client: ClientSession
) -> None:
    for number in range(10):
        node = faced.nodes["abc"[number % 3]]
        faced.directory.lives(node, number)
    pages = await _pages(client, faced, "/api/sessions", 4)
    assert [len(page["items"]) for page in pages] == [4, 4, 2]
    items = [item for page in pages for item in page["items"]]
    assert [item["id"] for item in items] == [f"s{number}" for number in reversed(range(10))]
    assert [item["node"] for item in items[:4]] == ["a", "c", "b", "a"]
    assert all(page["missing"] == [] for page in pages)


async def test_the_node_decides_what_is_shown_of_its_sessions(
    faced: FacedCluster, client: ClientSession
) -> None:
    """It gets the caller's credentials and conditions; what it leaves out is not in the list."""
    for number in range(3):
        faced.directory.lives(faced.nodes["a"], number)
    del faced.nodes["a"].sessions[f"{1:016x}"]
    query = {"status": "live", "label": "team:search", "metadata": "user=Anna"}
    found = await _get(client, faced, "/api/sessions", **query)
    assert [item["id"] for item in found["items"]] == ["s2", "s0"]
    (asked,) = faced.nodes["a"].asked
    assert asked.headers["Authorization"] == ADMIN["Authorization"]
    assert asked.headers["Host"] == faced.url.removeprefix("http://")
    assert query.items() <= dict(asked.query).items()
    assert faced.nodes["b"].asked == []  # it has none of them
    (_, _, _, filters) = faced.directory.asked[-1]
    assert (filters.status, filters.labels) == ("live", {"team": "search"})


async def test_a_node_adds_no_session_that_it_was_not_asked_for(
    faced: FacedCluster, client: ClientSession
) -> None:
    faced.directory.lives(faced.nodes["a"], 1)
    others = [{"id": "s9", "created_at": moment(9)}, {"id": "s1", "created_at": moment(2)}]

    async def more(_: web.Request) -> web.Response:
        items = [*faced.nodes["a"].sessions.values(), *others]
        return web.json_response({"items": [*items, *items], "next": None})

    faced.nodes["a"].instead = more
    assert [item["id"] for item in (await _get(client, faced, "/api/sessions"))["items"]] == ["s1"]


@pytest.mark.parametrize(("headers", "owner"), [(ADMIN, None), (OPERATOR, "ci"), (VIEWER, "ci")])
async def test_the_database_is_asked_for_the_callers_own_rows(
    faced: FacedCluster, headers: dict[str, str], owner: str | None
) -> None:
    async with ClientSession(headers=headers) as client:
        await _get(client, faced, "/api/sessions")
    assert faced.directory.asked[-1][0] == owner


@pytest.mark.parametrize(
    "path", ["/api/sessions", "/api/approvals", "/api/audit", "/api/usage", "/api/events"]
)
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Bearer H-3f0e6a52-94d1-4c7b-8a2e-5d1f9b7c6e30"}, 401),
        ({"Authorization": "Bearer metrics-key"}, 403),
    ],
)
async def test_who_may_not_list_asks_no_node(
    faced: FacedCluster, path: str, headers: dict[str, str], status: int
) -> None:
    faced.directory.lives(faced.nodes["a"], 1)
    async with ClientSession(headers=headers) as client:
        found = await _get(client, faced, path, status)
    assert "items" not in found
    assert not any(node.asked for node in faced.nodes.values())


async def test_without_the_database_there_is_no_list_of_sessions(
    faced: FacedCluster, client: ClientSession
) -> None:
    faced.directory.lives(faced.nodes["a"], 1)
    faced.directory.away = True
    found = await _get(client, faced, "/api/sessions", 503)
    assert found["code"] == "cluster_unavailable"
    faced.nodes["a"].happens(1)
    assert len((await _get(client, faced, "/api/audit"))["items"]) == 1


# The search of the record.


async def test_a_search_merges_nodes_by_time(faced: FacedCluster, client: ClientSession) -> None:
    for second in range(25):
        faced.nodes["abc"[second % 3]].happens(second)
    pages = await _pages(client, faced, "/api/audit", 7)
    times = [item["time"] for page in pages for item in page["items"]]
    assert times == [moment(second) for second in reversed(range(25))]
    assert [len(page["items"]) for page in pages] == [7, 7, 7, 4]
    assert pages[0]["archived"] == 3
    assert isinstance(pages[0]["next"], str)


async def test_conditions_of_a_search_go_to_the_nodes(
    faced: FacedCluster, client: ClientSession
) -> None:
    query = {"text": "a b&c", "decision": "deny", "from": "2026-03-04T09:30:00+01:00"}
    await _get(client, faced, "/api/audit", **query)
    for node in faced.nodes.values():
        (asked,) = node.asked
        assert dict(asked.query) == query | {"limit": "100"}


_OTHER = Positions("other", Series.SEARCH).write(Position({"a": 3}))


@pytest.mark.parametrize("cursor", ["", "7", "x", "é", "A" * 40_000, _OTHER, "\0"])
async def test_a_position_that_is_none_is_refused_and_asks_nobody(
    faced: FacedCluster, client: ClientSession, cursor: str
) -> None:
    for path in ("/api/audit", "/api/approvals"):
        found = await _get(client, faced, path, 400, cursor=cursor)
        assert found["code"] == "validation_error"
        assert found.get("field") in ("cursor", None)
    assert not any(node.asked for node in faced.nodes.values())


async def test_positions_of_forgotten_nodes_stay_valid(
    faced: FacedCluster, client: ClientSession
) -> None:
    for second in range(6):
        faced.nodes["ab"[second % 2]].happens(second)
    first = await _get(client, faced, "/api/audit", limit=2)
    await faced.dies("b")
    await faced.directory.forget("b")
    await faced.cluster.gateway.members.refresh()
    rest = await _get(client, faced, "/api/audit", cursor=first["next"])
    assert [item["time"] for item in rest["items"]] == [moment(2), moment(0)]
    assert rest["next"] is None


# Nodes that do not answer, or not as they should.


async def _never(_: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def _drips(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b'{"items": [')
    await asyncio.Event().wait()
    return response


async def _breaks(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"items": [')
    assert request.transport is not None
    request.transport.abort()
    return response


def _says(body: bytes | str, status: int = 200) -> Any:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=status)

    return answer


_BAD_ITEMS: list[Any] = [7, None, {}, {"id": "x", "time": "t"}, {"id": 1}, {"id": 0, "time": "t"}]
_BAD_ITEMS += [{"id": 1.5, "time": "t"}, {"id": "1", "time": "t"}, {"id": 1, "time": 7}]
NONSENSE = {
    "hangs": _never,
    "drips": _drips,
    "breaks": _breaks,
    "no json": _says("hello"),
    "no text": _says(b"\xff\xfe"),
    "empty": _says(""),
    "a list": _says("[]"),
    "deep": _says('{"items":' * 100_000),
    "deep lists": _says("[" * 1_000_000),
    "no items": _says('{"next": null}'),
    "a bad next": _says('{"items": [], "next": "x", "archived": 0}'),
    "a large number": _says('{"items": [], "next": 1e400, "archived": 0}'),
    "no number": _says('{"items": [], "next": null, "archived": NaN}'),
    "another status": _says("{}", 204),
    "redirected": _says("{}", 302),
    "failed": _says('{"code": "internal_error"}', 500),
    "unavailable": _says('{"code": "audit_unavailable"}', 503),
    **{
        f"the item {item}": _says(json.dumps({"items": [item], "next": None, "archived": 0}))
        for item in _BAD_ITEMS
    },
}


@pytest.mark.parametrize("instead", NONSENSE.values(), ids=NONSENSE.keys())
async def test_a_node_that_answers_badly_is_named_and_the_others_are_shown(
    impatient: FacedCluster, client: ClientSession, instead: Any
) -> None:
    for second in range(6):
        impatient.nodes["abc"[second % 3]].happens(second)
    impatient.nodes["b"].instead = instead
    found = await _get(client, impatient, "/api/audit")
    assert [item["session_id"] for item in found["items"]] == ["c", "a", "c", "a"]
    assert found["missing"] == ["b"]
    # Who reads all pages comes to an end, however long the node is away.
    assert found["next"] is None


@pytest.mark.parametrize(
    "path", ["/api/sessions", "/api/approvals", "/api/audit/denials", "/api/usage"]
)
@pytest.mark.parametrize("instead", [_never, _says("[]"), _says('{"items": [7]}')])
async def test_every_list_names_nodes_that_answer_badly(
    impatient: FacedCluster, client: ClientSession, path: str, instead: Any
) -> None:
    for number, name in enumerate("abc"):
        node = impatient.nodes[name]
        impatient.directory.lives(node, number)
        node.usage = {"round": 1, "interval": 10.0, "host": None, "items": []}
    impatient.nodes["b"].instead = instead
    found = await _get(client, impatient, path)
    assert found["missing"] == ["b"]


async def test_a_node_whose_lease_has_ended_is_not_asked(
    faced: FacedCluster, client: ClientSession
) -> None:
    faced.nodes["a"].happens(1)
    await faced.dies("b")
    found = await _get(client, faced, "/api/audit")
    assert (len(found["items"]), found["missing"]) == (1, ["b"])
    assert faced.nodes["b"].asked == []


async def test_a_node_whose_lease_ends_meanwhile_is_not_waited_for(
    client: ClientSession,
) -> None:
    async with faced_cluster(seconds=50.0) as faced:
        arrived = asyncio.Event()

        async def arrives(request: web.Request) -> web.StreamResponse:
            arrived.set()
            return await _never(request)

        faced.nodes["b"].instead = arrives
        asking = asyncio.ensure_future(_get(client, faced, "/api/audit"))
        await arrived.wait()
        await faced.dies("b")
        assert (await asking)["missing"] == ["b"]


async def test_if_nobody_answers_there_is_no_empty_list(
    faced: FacedCluster, client: ClientSession
) -> None:
    for name in faced.nodes:
        await faced.dies(name)
    for path in ("/api/audit", "/api/approvals", "/api/usage"):
        found = await _get(client, faced, path, 503)
        assert (found["code"], found["retry_after"]) == ("node_unavailable", 2)


async def test_a_long_answer_is_not_kept_and_a_shorter_page_is_asked_for(
    faced: FacedCluster, client: ClientSession
) -> None:
    """Events of 100 KiB: a hundred are too many at once, some of them are not."""
    for second in range(100):
        faced.nodes["a"].happens(second, args={"text": "x" * 100_000})
    faced.nodes["b"].happens(200)
    first = await _get(client, faced, "/api/audit")
    assert 1 < len(first["items"]) < 30
    assert [asked.query["limit"] for asked in faced.nodes["a"].asked] == ["100", "6"]
    pages = await _pages(client, faced, "/api/audit", 50)
    assert sum(len(page["items"]) for page in pages) == 101
    assert all(page["missing"] == [] for page in pages)


async def test_an_endless_answer_is_cut_off(faced: FacedCluster, client: ClientSession) -> None:
    """10 MB without a length, and then more: what is not kept is not read either."""
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b'{"items":[' + b" " * 65536)
            sent += 65536

    faced.nodes["a"].happens(1)
    faced.nodes["b"].instead = endless
    found = await _get(client, faced, "/api/audit")
    assert (len(found["items"]), found["missing"]) == (1, ["b"])
    # Three attempts of 2 MiB each, and what sockets hold.
    assert len(faced.nodes["b"].asked) == 3
    assert sent < 3 * (2 * MIB + 8 * MIB)


# Refusals.


@pytest.mark.parametrize("status", [401, 403, 429, 400])
async def test_what_refuses_the_caller_refuses_the_whole_list(
    faced: FacedCluster, client: ClientSession, status: int
) -> None:
    async def refuse(_: web.Request) -> web.Response:
        body = json.dumps({"code": "refused", "status": status})
        headers = {"Retry-After": "7", "X-Other": "x"}
        return web.Response(
            text=body, status=status, headers=headers, content_type="application/problem+json"
        )

    faced.nodes["a"].happens(1)
    faced.nodes["b"].instead = refuse
    async with client.get(f"{faced.url}/api/audit") as answer:
        assert answer.status == status
        assert await answer.json(content_type=None) == {"code": "refused", "status": status}
        assert answer.headers["Retry-After"] == "7"
        assert answer.content_type == "application/problem+json"
        assert "X-Other" not in answer.headers


async def test_a_session_that_only_one_node_knows_is_found(
    faced: FacedCluster, client: ClientSession
) -> None:
    faced.nodes["a"].approvals = [{"id": f"apr-{1:016x}", "requested_at": moment(1)}]
    for name in "bc":
        faced.nodes[name].instead = _says('{"code": "not_found"}', 404)
    found = await _get(client, faced, "/api/approvals", session="s1")
    assert len(found["items"]) == 1
    assert (found["next"], found["missing"]) == (None, [])
    faced.nodes["a"].instead = _says('{"code": "not_found"}', 404)
    assert (await _get(client, faced, "/api/approvals", 404))["code"] == "not_found"


# Approvals.


def _approvals(faced: FacedCluster, count: int) -> list[str]:
    ids = []
    for second in range(count):
        # Their ids are random, and say nothing of their order.
        ids.append(f"apr-{(second * 0x9E3779B97F4A7C15 + 1) % 2**64:016x}")
        asked = {"id": ids[-1], "requested_at": moment(second), "status": "pending"}
        faced.nodes["abc"[second % 3]].approvals.append(asked)
    return ids


async def test_approvals_of_all_nodes_are_one_list(
    faced: FacedCluster, client: ClientSession
) -> None:
    ids = _approvals(faced, 20)
    pages = await _pages(client, faced, "/api/approvals", 6)
    assert [item["id"] for page in pages for item in page["items"]] == ids[::-1]
    assert [len(page["items"]) for page in pages] == [6, 6, 6, 2]


async def test_a_decision_is_made_where_the_approval_is(
    faced: FacedCluster, client: ClientSession
) -> None:
    ids = _approvals(faced, 3)
    path = f"{faced.url}/api/approvals/{ids[1]}"
    async with client.post(path, json={"decision": "approve"}) as answer:
        assert answer.status == 200
        assert (await answer.json())["status"] == "approved"
    assert faced.nodes["b"].approvals[0]["status"] == "approved"
    assert faced.nodes["a"].approvals[0]["status"] == "pending"
    async with client.post(path, json={"decision": "deny"}) as answer:
        assert answer.status == 409


async def test_an_approval_that_may_be_on_a_silent_node_is_not_said_to_be_unknown(
    impatient: FacedCluster, client: ClientSession
) -> None:
    path = f"{impatient.url}/api/approvals/apr-0000000000000001"
    async with client.post(path, json={"decision": "approve"}) as answer:
        assert answer.status == 404
    await impatient.dies("c")
    async with client.post(path, json={"decision": "approve"}) as answer:
        assert answer.status == 503
        assert (await answer.json())["code"] == "node_unavailable"


# Sums.


async def test_usage_is_added_up(faced: FacedCluster, client: ClientSession) -> None:
    host = {"cpus": 4, "memory_bytes": 100, "disk_bytes": 1000}
    for number, name in enumerate("ab", 1):
        samples = [10.0 * number] * number
        faced.nodes[name].usage = {
            "round": number,
            "sampled_at": moment(number),
            "interval": 10.0,
            "host": {
                **host,
                "cpu_percent": samples,
                "memory_used": [number] * number,
                "disk_used": [number] * number,
            },
            "items": [{"id": name, "cpu_percent": samples, "memory_bytes": [7] * number}],
            "next": None,
        }
    await faced.dies("c")
    found = await _get(client, faced, "/api/usage")
    assert found["host"] == {
        "cpus": 8,
        "memory_bytes": 200,
        "disk_bytes": 2000,
        "cpu_percent": [10.0, 15.0],
        "memory_used": [2, 3],
        "disk_used": [2, 3],
    }
    assert [item["id"] for item in found["items"]] == ["a", "b"]
    assert (found["sampled_at"], found["missing"]) == (moment(2), ["c"])
    later = await _get(client, faced, "/api/usage", after=found["round"])
    assert all(len(item["cpu_percent"]) <= 1 for item in later["items"])


async def test_denials_are_the_largest_groups_of_all_nodes(
    faced: FacedCluster, client: ClientSession
) -> None:
    for number, name in enumerate("abc", 1):
        faced.nodes[name].denials = [
            {"session_id": f"{name}{times}", "times": times}
            for times in range(40 * number, 40 * number - 40, -1)
        ]
    found = await _get(client, faced, "/api/audit/denials")
    assert [group["times"] for group in found["items"]] == list(range(120, 70, -1))


# Nodes.


async def test_admins_see_and_change_nodes(faced: FacedCluster, client: ClientSession) -> None:
    await faced.dies("c")
    found = await _get(client, faced, "/api/nodes")
    assert [(node["name"], node["state"], node["alive"]) for node in found["items"]] == [
        ("a", "ready", True),
        ("b", "ready", True),
        ("c", "ready", False),
    ]
    for change, state in (("drain", "draining"), ("undrain", "ready")):
        async with client.post(f"{faced.url}/api/nodes/a/{change}") as answer:
            assert ((await answer.json())["state"], answer.status) == (state, 200)
        assert faced.directory.known["a"].report.state == state
    async with client.post(f"{faced.url}/api/nodes/a/forget") as answer:
        assert answer.status == 409
    async with client.post(f"{faced.url}/api/nodes/c/forget") as answer:
        assert ((await answer.json())["state"], answer.status) == ("gone", 200)
    assert "c" not in faced.directory.known
    async with client.post(f"{faced.url}/api/nodes/c/drain") as answer:
        assert answer.status == 404


@pytest.mark.parametrize("headers", [OPERATOR, VIEWER])
async def test_only_admins_change_nodes_and_only_who_sees_all_sees_them(
    faced: FacedCluster, headers: dict[str, str]
) -> None:
    async with ClientSession(headers=headers) as other:
        assert (await _get(other, faced, "/api/nodes"))["items"] == []
        for change in ("drain", "undrain", "forget"):
            async with other.post(f"{faced.url}/api/nodes/a/{change}") as answer:
                assert answer.status == 403
    assert faced.directory.known["a"].report.state == "ready"
