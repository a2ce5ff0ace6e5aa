"""Lists of what keys have on nodes, and E2B's lists, through a gateway over small servers."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from types import MappingProxyType
from typing import Any

import pytest
from aiohttp import ClientSession, web

from tests.support.faced_cluster import ADMIN, OPERATOR, FacedCluster, faced_cluster, moment

E2B = {"X-API-KEY": "operator-key"}
_E2B = "/compat/e2b"


@pytest.fixture
async def faced() -> AsyncIterator[FacedCluster]:
    async with faced_cluster() as made:
        yield made


async def _get(
    faced: FacedCluster,
    path: str,
    headers: Mapping[str, str] = ADMIN,
    code: int = 200,
    query: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Any, dict[str, str]]:
    async with (
        ClientSession(headers=headers) as client,
        client.get(f"{faced.url}{path}", params=dict(query)) as answer,
    ):
        text = await answer.text()
        assert answer.status == code, text
        return json.loads(text), dict(answer.headers)


def _listing(path: str, names: list[str], **sent: str) -> Callable[[web.Request], Any]:
    """A node's list of what the key `ci` has by these names, as control planes page it."""

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.path == path
        query = request.query
        assert all(query[name] == text for name, text in sent.items())
        given = [query[name] for name in ("cursor", "after", "nextToken") if name in query]
        after = "".join(given).rpartition("/")[2]
        limit = int(query["limit"])
        rest = sorted(name for name in names if name > after)[:limit]
        following = f"ci/{rest[-1]}" if len(rest) == limit else None
        if path.startswith(_E2B):
            items = [{"snapshotID": name, "names": [], "position": f"ci/{name}"} for name in rest]
            headers = {} if following is None else {"X-Next-Token": following}
            return web.json_response(items, headers=headers)
        if path == "/api/audit/archives":
            items = [{"session_key": name} for name in rest]
            following = None if following is None else rest[-1]
        else:
            items = [{"key": "ci", "name": name} for name in rest]
        return web.json_response({"items": items, "next": following, "missing": []})

    return answer


@pytest.mark.parametrize(
    ("path", "parameter", "member"),
    [
        ("/api/volumes", "cursor", "name"),
        ("/api/snapshots", "cursor", "name"),
        ("/api/audit/archives", "after", "session_key"),
        (f"{_E2B}/snapshots", "nextToken", "snapshotID"),
    ],
)
async def test_lists_by_name_are_one_list(
    faced: FacedCluster, path: str, parameter: str, member: str
) -> None:
    for name, names in (("a", "aceg"), ("b", "bdf"), ("c", "c")):
        faced.nodes[name].instead = _listing(path, list(names))
    found: list[str] = []
    cursor: dict[str, str] = {}
    pages = 0
    while True:
        page, headers = await _get(faced, path, query={"limit": "2", **cursor})
        items = page if isinstance(page, list) else page["items"]
        following = headers.get("X-Next-Token") if isinstance(page, list) else page["next"]
        found += [item[member] for item in items]
        assert all("position" not in item for item in items)
        pages += 1
        if following is None:
            break
        cursor = {parameter: following}
    # Two nodes have a c: what has one name is on one page.
    assert found == [*"abccdefg"]
    assert pages <= 6
    # Who is away is named.
    await faced.dies("b")
    page, headers = await _get(faced, path)
    if isinstance(page, list):
        assert headers["X-Paddock-Missing"] == "b"
        assert [item[member] for item in page] == [*"acceg"]
    else:
        assert (page["missing"], [item[member] for item in page["items"]]) == (["b"], [*"acceg"])


async def test_parameters_go_to_the_nodes_as_they_are(faced: FacedCluster) -> None:
    for node in faced.nodes.values():
        node.instead = _listing("/api/snapshots", ["x"], key="ci", session="a b&c")
    page, _ = await _get(faced, "/api/snapshots", query={"key": "ci", "session": "a b&c"})
    assert len(page["items"]) == 3


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/api/volumes", {"limit": "0"}),
        ("/api/volumes", {"node": "a"}),
        ("/api/snapshots", {"cursor": "x" * 200}),
        ("/api/audit/archives", {"limit": "x"}),
        (f"{_E2B}/snapshots", {"limit": "-1"}),
        (f"{_E2B}/v2/sandboxes", {"limit": "none"}),
        (f"{_E2B}/v2/sandboxes", {"nextToken": "é"}),
        (f"{_E2B}/sandboxes", {"startedAfter": "yesterday"}),
        (f"{_E2B}/sandboxes", {"order": "both"}),
    ],
)
async def test_bad_queries_ask_no_node(
    faced: FacedCluster, path: str, query: dict[str, str]
) -> None:
    found, _ = await _get(faced, path, ADMIN | E2B, 400, query)
    assert next(iter(query)) in (found.get("field"), *found.get("message", "").split())
    assert not any(node.asked for node in faced.nodes.values())


@pytest.mark.parametrize("path", ["/api/volumes", "/api/snapshots", "/api/audit/archives"])
@pytest.mark.parametrize(
    "sent",
    [
        b"[]",
        b"{",
        b'{"items": 7, "next": null}',
        b'{"items": [{"key": "b"}], "next": null}',
        b'{"items": [{"key": "ci", "name": "b", "session_key": "b"},'
        b' {"key": "ci", "name": "a", "session_key": "a"}], "next": null}',
        b'{"items": [], "next": ""}',
    ],
)
async def test_a_node_that_sends_no_page_is_missing(
    faced: FacedCluster, path: str, sent: bytes
) -> None:
    async def wrong(_: web.Request) -> web.StreamResponse:
        return web.Response(body=sent, content_type="application/json")

    for name in "ac":
        faced.nodes[name].instead = _listing(path, ["x"])
    faced.nodes["b"].instead = wrong
    page, _ = await _get(faced, path)
    assert (len(page["items"]), page["missing"]) == (2, ["b"])


async def test_archives_are_an_admins(faced: FacedCluster) -> None:
    await _get(faced, "/api/audit/archives", OPERATOR, 403)
    async with (
        ClientSession(headers=OPERATOR) as client,
        client.post(f"{faced.url}/api/audit/archives", json={}) as answer,
    ):
        assert answer.status == 403
    assert not any(node.asked for node in faced.nodes.values())


async def test_all_nodes_archive(faced: FacedCluster) -> None:
    def archiving(name: str) -> Callable[[web.Request], Any]:
        async def answer(request: web.Request) -> web.StreamResponse:
            assert await request.json() == {"older_than": 60}
            run = {
                "items": [{"session_key": name, "node": name}],
                "refused": {f"{name}/1": "busy"},
                "more": name == "b",
                "missing": [],
            }
            return web.json_response(run)

        return answer

    for name in "abc":
        faced.nodes[name].instead = archiving(name)
    await faced.dies("c")
    async with (
        ClientSession(headers=ADMIN) as client,
        client.post(f"{faced.url}/api/audit/archives", json={"older_than": 60}) as answer,
    ):
        found = await answer.json()
    assert found == {
        "items": [{"session_key": name, "node": name} for name in "ab"],
        "refused": {"a/1": "busy", "b/1": "busy"},
        "more": True,
        "missing": ["c"],
    }


# E2B.


def _sandboxes(faced: FacedCluster, name: str) -> Callable[[web.Request], Any]:
    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.path == f"{_E2B}/v2/sandboxes"
        assert request.headers["X-API-KEY"] == "operator-key"
        keys = request.query["keys"].split(",")
        found = [faced.nodes[name].sessions[key] for key in keys]
        items = [
            {"sandboxID": each["id"], "startedAt": each["created_at"], "state": "running"}
            for each in found
            if each.get("label")
        ]
        return web.json_response(items)

    return answer


async def test_sandboxes_of_all_nodes_are_one_list(faced: FacedCluster) -> None:
    for number in range(10):
        node = faced.nodes["abc"[number % 3]]
        # A session that E2B's clients have not made is none of theirs.
        faced.directory.lives(node, number, label=number != 4)
        node.instead = _sandboxes(faced, node.name)
    found, query = [], {"metadata": "user=Anna", "limit": "4"}
    while True:
        page, headers = await _get(faced, f"{_E2B}/sandboxes", E2B, query=query)
        found += [item["sandboxID"] for item in page]
        token = headers.get("X-Next-Token")
        if token is None:
            break
        query["nextToken"] = token
    assert found == [f"s{number}" for number in reversed(range(10)) if number != 4]
    asked = faced.nodes["a"].asked[0].query
    assert (asked["metadata"], "nextToken" in asked) == ("user=Anna", False)
    owner, _, _, filters = faced.directory.asked[0]
    assert (owner, filters.status) == ("ci", "live")
    # What is older than all that is wanted is not looked through.
    _, headers = await _get(
        faced,
        f"{_E2B}/v2/sandboxes",
        E2B,
        query={"limit": "4", "startedAfter": moment(8), "template": "base"},
    )
    assert "X-Next-Token" not in headers
    assert faced.directory.asked[-1][3].labels == {"e2b.template": "base"}


async def test_templates_and_volumes_of_e2b_are_listed_once(faced: FacedCluster) -> None:
    for name in "abc":

        async def answer(request: web.Request, name: str = name) -> web.StreamResponse:
            member = "volumeID" if request.path.endswith("volumes") else "templateID"
            return web.json_response([{member: "base", "node": name}, {member: name}])

        faced.nodes[name].instead = answer
    for path, member in (
        ("volumes", "volumeID"),
        ("templates", "templateID"),
        ("v2/templates", "templateID"),
    ):
        page, _ = await _get(faced, f"{_E2B}/{path}", E2B)
        assert [item[member] for item in page] == ["a", "b", "base", "c"]
