"""Where a gateway puts what names volumes, snapshots, templates and images, and how it finds them.

Nodes are small servers that have things of keys by name.
"""

import io
import json
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import ClientSession, web

from orchestrator.cluster.directory import Hold
from orchestrator.cluster.session_ids import repeated_session_id
from orchestrator.operate.snapshots.archive import head
from tests.support.faced_cluster import ADMIN, OPERATOR, FacedCluster, faced_cluster

E2B = {"X-API-KEY": "operator-key"}
_E2B = "/compat/e2b"


@dataclass
class Things:
    """What a node has, by path, and the requests that it got besides questions for these."""

    name: str
    has: dict[str, dict[str, Any]] = field(default_factory=dict)
    got: list[tuple[str, str, bytes]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    refuses: int | None = None
    templates: list[str] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.raw_path.partition("?")[0]
        if request.method == "GET" and self.refuses is not None:
            return web.json_response({"code": "rate_limited"}, status=self.refuses)
        if request.method == "GET" and path == f"{_E2B}/templates":
            names = [("base", 0), *((name, 1) for name in self.templates)]
            return web.json_response([{"templateID": each, "buildCount": n} for each, n in names])
        if request.method == "GET":
            found = self.has.get(path)
            code = {"code": "not_found"}
            return web.json_response(found or code, status=200 if found else 404)
        self.got.append((request.method, request.raw_path, await request.read()))
        self.headers.append(dict(request.headers))
        return web.json_response({"node": self.name}, status=201)


class Cluster:
    """Three nodes with names, of which c can enforce high and has an image."""

    def __init__(self, faced: FacedCluster) -> None:
        self.faced = faced
        self.nodes: dict[str, Things] = {}

    async def start(self) -> None:
        for name in "abc":
            node = self.nodes[name] = Things(name)
            more = {"levels": ("low", "medium", "high"), "images": ("python:3",)}
            members = {**(more if name == "c" else {}), "labels": {"rack": name}}
            await self.faced.cluster.serve(name, node.answer, **members)

    def has(self, nodes: str, path: str) -> None:
        for name in nodes:
            self.nodes[name].has[path] = {"name": path}

    async def sent(
        self,
        method: str,
        path: str,
        code: int = 201,
        body: Any = None,
        headers: Mapping[str, str] = OPERATOR,
    ) -> dict[str, Any]:
        given = {} if body is None else body
        text = given if isinstance(given, bytes) else json.dumps(given).encode()
        async with (
            ClientSession(headers=headers) as client,
            client.request(method, f"{self.faced.url}{path}", data=io.BytesIO(text)) as answer,
        ):
            said = await answer.text()
            assert answer.status == code, said
            found: dict[str, Any] = json.loads(said)
            return found


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with faced_cluster(names=()) as faced:
        made = Cluster(faced)
        await made.start()
        yield made


# Sessions.


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/volumes/cache", {"volumes": [{"name": "cache", "path": "/data/x"}]}),
        ("/api/snapshots/base", {"from_snapshot": "base"}),
        ("/api/snapshots/snap-0123456789abcdef", {"from_snapshot": "snap-0123456789abcdef"}),
    ],
)
async def test_a_session_is_put_where_what_it_names_is(
    cluster: Cluster, path: str, body: dict[str, Any]
) -> None:
    for name in "abc":
        for node in cluster.nodes.values():
            node.has.clear()
        cluster.has(name, path)
        assert (await cluster.sent("POST", "/api/sessions", body=body))["node"] == name
        assert (await cluster.sent("PUT", f"/api/sessions/s-{name}", body=body))["node"] == name


async def test_what_is_on_two_nodes_is_had_by_no_session(cluster: Cluster) -> None:
    cluster.has("a", "/api/volumes/one")
    cluster.has("b", "/api/volumes/two")
    cluster.has("ab", "/api/snapshots/base")
    mounts = [{"name": "one", "path": "/data/1"}, {"name": "two", "path": "/data/2"}]
    found = await cluster.sent("POST", "/api/sessions", 409, {"volumes": mounts})
    assert (found["code"], found["field"]) == ("conflict", "volumes")
    # Two snapshots of one name differ, so that neither is meant.
    found = await cluster.sent("POST", "/api/sessions", 409, {"from_snapshot": "base"})
    assert "a, b" in found["detail"]
    assert not any(node.got for node in cluster.nodes.values())
    # What nobody has is refused by a node, in its own words.
    await cluster.sent("POST", "/api/sessions", body={"from_snapshot": "none"})


async def test_a_node_that_may_have_it_is_waited_for(cluster: Cluster) -> None:
    cluster.has("a", "/api/volumes/cache")
    body = {"volumes": [{"name": "cache", "path": "/data/x"}]}
    await cluster.faced.dies("b")
    # Where it is found, it does not matter who else is away.
    assert (await cluster.sent("POST", "/api/sessions", body=body))["node"] == "a"
    await cluster.faced.dies("a")
    for method, path, sent in (
        ("POST", "/api/sessions", body),
        ("GET", "/api/volumes/cache", {}),
        ("DELETE", "/api/snapshots/base", {}),
    ):
        found = await cluster.sent(method, path, 503, sent)
        assert (found["code"], found["node"]) == ("node_unavailable", "a"), path
    assert not cluster.nodes["c"].got


async def test_a_refusal_of_the_caller_is_the_answer(cluster: Cluster) -> None:
    cluster.nodes["b"].refuses = 429
    found = await cluster.sent("POST", "/api/sessions", 429, {"from_snapshot": "base"})
    assert found["code"] == "rate_limited"
    assert not any(node.got for node in cluster.nodes.values())


# Volumes and snapshots.


async def test_a_volume_is_put_and_found(cluster: Cluster) -> None:
    body = {"name": "cache", "size_bytes": 2**30, "placement": {"labels": {"rack": "b"}}}
    assert (await cluster.sent("POST", "/api/volumes", body=body))["node"] == "b"
    cluster.has("b", "/api/volumes/cache")
    assert (await cluster.sent("DELETE", "/api/volumes/cache?key=ci"))["node"] == "b"
    assert cluster.nodes["b"].got[-1][:2] == ("DELETE", "/api/volumes/cache?key=ci")
    near = {"name": "other", "size_bytes": 2**30, "placement": {"near": "web"}}
    cluster.faced.directory.places["web"] = ("c", Hold.LIVE)
    assert (await cluster.sent("POST", "/api/volumes", body=near))["node"] == "c"


async def test_a_name_that_several_nodes_have_needs_a_node(cluster: Cluster) -> None:
    cluster.has("ac", "/api/volumes/cache")
    found = await cluster.sent("DELETE", "/api/volumes/cache", 409)
    assert "a, c" in found["detail"]
    assert (await cluster.sent("DELETE", "/api/volumes/cache?node=c&key=ci"))["node"] == "c"
    assert cluster.nodes["c"].got == [("DELETE", "/api/volumes/cache?key=ci", b"{}")]
    for query, code in (("node=none", 400), ("node=", 400), ("node=a&node=c", 400)):
        found = await cluster.sent("DELETE", f"/api/volumes/cache?{query}", code)
        assert found["field"] == "node"
    assert not cluster.nodes["a"].got


async def test_what_each_node_has_of_its_own_is_asked_of_one(cluster: Cluster) -> None:
    found = await cluster.sent("POST", "/api/audit/index", 404, headers=ADMIN)
    assert "`node`" in found["detail"]
    assert (await cluster.sent("POST", "/api/audit/index?node=b", headers=ADMIN))["node"] == "b"
    assert cluster.nodes["b"].got == [("POST", "/api/audit/index", b"{}")]


async def test_what_one_node_does_for_all_goes_to_any_or_to_the_one_that_is_named(
    cluster: Cluster,
) -> None:
    for path in ("/api/owners/ci/erase", "/api/owners/ci/export"):
        assert (await cluster.sent("POST", path, headers=ADMIN))["node"] in {"a", "b", "c"}
        assert (await cluster.sent("POST", f"{path}?node=b", headers=ADMIN))["node"] == "b"
        assert cluster.nodes["b"].got[-1][:2] == ("POST", path)


# E2B.


@pytest.mark.parametrize(
    ("body", "node"),
    [
        ({"templateID": "high"}, "c"),
        ({"templateID": "base", "metadata": {"paddock.level": "high"}}, "c"),
        ({"templateID": "python:3"}, "c"),
        ({"templateID": "mine", "metadata": {"paddock.level": "low"}}, "b"),
        ({"templateID": "base", "volumeMounts": [{"name": "cache", "path": "/d"}]}, "a"),
    ],
)
async def test_a_sandbox_is_put_where_it_can_be(
    cluster: Cluster, body: dict[str, Any], node: str
) -> None:
    cluster.has("b", f"{_E2B}/templates/aliases/mine")
    cluster.has("a", f"{_E2B}/volumes/cache")
    for path in ("/sandboxes", "/v2/sandboxes"):
        assert (await cluster.sent("POST", _E2B + path, body=body, headers=E2B))["node"] == node


async def test_a_sandbox_has_the_id_of_its_key(cluster: Cluster) -> None:
    path = f"{_E2B}/v2/sandboxes"
    keyed = {**E2B, "Idempotency-Key": "once"}
    found = await cluster.sent("POST", path, body={"templateID": "base"}, headers=keyed)
    # Whoever asks again comes to the same node, at every gateway.
    session_id = repeated_session_id("ci", "once")
    cluster.faced.directory.places[session_id] = (found["node"], Hold.LIVE)
    again = await cluster.sent("POST", path, body={"templateID": "base"}, headers=keyed)
    assert again["node"] == found["node"]
    # Without a key, the gateway makes one, so that it knows the id.
    made = await cluster.sent("POST", path, body={"templateID": "base"}, headers=E2B)
    (headers,) = cluster.nodes[made["node"]].headers[-1:]
    assert re.fullmatch("[0-9a-f]{32}", headers["Idempotency-Key"])
    for member in cluster.nodes:
        await cluster.faced.cluster.serve(member, _lost)
    found = await cluster.sent("POST", path, 502, {"templateID": "base"}, headers=E2B)
    assert found["code"] == 502
    assert re.search("sbx-[0-9a-f]{16}", found["message"])


async def _lost(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def test_errors_of_the_gateway_are_as_the_sdks_read_them(cluster: Cluster) -> None:
    for name in cluster.nodes:
        await cluster.faced.dies(name)
    for method, path in (("POST", "/sandboxes"), ("GET", "/v2/sandboxes/web"), ("GET", "/volumes")):
        found = await cluster.sent(method, _E2B + path, 503, headers=E2B)
        assert found["code"] == 503
        assert found["message"]
    assert (await cluster.sent("GET", f"{_E2B}/sandboxes", 401, headers={"X-API-KEY": "no"}))[
        "code"
    ] == 401


@pytest.mark.parametrize("root", ["", _E2B])
async def test_the_node_that_knows_a_signature_answers(cluster: Cluster, root: str) -> None:
    """A signed address names no sandbox. Who does not know the signature gets nothing of it."""
    cluster.has("c", f"{_E2B}/files/signer")
    path, large = f"{root}/files?path=x&signature=v1_abc", bytes(20 * 2**20)
    for body in (b"text", large):
        assert (await cluster.sent("POST", path, body=body, headers={}))["node"] == "c"
        assert cluster.nodes["c"].got.pop() == ("POST", path, body)
    # Whom nobody knows, any node refuses in its own words; and one that is away may know him.
    cluster.nodes["c"].has.clear()
    await cluster.sent("POST", path, body=b"text", headers={})
    await cluster.faced.dies("c")
    found = await cluster.sent("POST", path, 503, b"text", headers={})
    assert "c" in str(found)


# Templates that E2B's clients build.


async def test_all_templates_of_a_key_are_built_on_one_node(cluster: Cluster) -> None:
    path = f"{_E2B}/v3/templates"

    async def built(name: str) -> str:
        found = await cluster.sent("POST", path, body={"name": name}, headers=E2B)
        return str(found["node"])

    first = await built("one")
    assert {await built(f"t{number}") for number in range(4)} == {first}
    # Where it has others; and where it has the same, of any tag.
    other = next(name for name in "abc" if name != first)
    cluster.nodes[other].templates = ["two"]
    assert await built("new") == other
    cluster.nodes[first].templates = ["three", "four"]
    assert (await built("new"), await built("TWO:v1")) == (first, other)
    cluster.nodes[other].refuses = 429
    found = await cluster.sent("POST", path, 429, {"name": "two"}, headers=E2B)
    assert found["code"] == "rate_limited"


async def test_a_template_is_not_built_where_another_node_may_have_it(cluster: Cluster) -> None:
    cluster.nodes["a"].templates = ["one"]
    await cluster.faced.dies("b")
    path = f"{_E2B}/v3/templates"
    assert (await cluster.sent("POST", path, body={"name": "one"}, headers=E2B))["node"] == "a"
    found = await cluster.sent("POST", path, 503, {"name": "two"}, headers=E2B)
    assert "the node b" in found["message"]
    for body in (b"[", b"", b'{"name": 7}'):
        await cluster.sent("POST", path, 503, body, headers=E2B)


async def test_a_build_is_asked_where_it_is(cluster: Cluster) -> None:
    build = f"{_E2B}/templates/web/builds/1/status"
    cluster.has("b", build)
    for _ in range(2):
        found = await cluster.sent("POST", f"{_E2B}/v2/templates/web/builds/1", headers=E2B)
        assert found["node"] == "b"
        # It is remembered, because a build never moves.
        cluster.nodes["b"].has.clear()
    files = f"{_E2B}/templates/web/files/ab"
    cluster.has("c", files)
    await cluster.sent("GET", files, 200, headers=E2B)
    sent = await cluster.sent("PUT", f"{files}?upload=x&node=c", body=bytes(10**7), headers={})
    assert sent["node"] == "c"
    assert cluster.nodes["c"].got[-1][:2] == ("PUT", f"{files}?upload=x")


@pytest.mark.parametrize(("method", "member"), [("POST", "target"), ("DELETE", "name")])
async def test_tags_are_changed_where_the_template_is(
    cluster: Cluster, method: str, member: str
) -> None:
    path = f"{_E2B}/templates/tags"
    cluster.has("b", f"{_E2B}/templates/web/tags")
    for name in ("web", "Web:v1"):
        body = {member: name, "tags": ["v2"]}
        assert (await cluster.sent(method, path, body=body, headers=E2B))["node"] == "b"
    # What is wrong, a node says.
    bodies: list[Any] = [{}, {member: 7}, {member: "other"}, []]
    for wrong in bodies:
        await cluster.sent(method, path, body=wrong, headers=E2B)


# Restored sessions.


@pytest.mark.parametrize("rest", [0, 200_000])
async def test_a_restored_session_is_put_by_what_its_archive_says(
    cluster: Cluster, rest: int
) -> None:
    for session, node in (
        ({"id": "x", "permission_level": "high"}, "c"),
        ({"id": "x", "permission_level": "low", "image": "python:3"}, "c"),
        ({"id": "x", "permission_level": "low", "placement": {"labels": {"rack": "b"}}}, "b"),
        ({"id": "kept", "permission_level": "low"}, "a"),
    ):
        cluster.faced.directory.places["kept"] = ("a", Hold.LIVE)
        archive = head(json.dumps({"session": session}).encode()) + bytes(rest)
        found = await cluster.sent("POST", "/api/sessions/restore", body=archive)
        assert found["node"] == node
        # All of it arrives, and nothing else.
        assert cluster.nodes[node].got[-1][2] == archive
    archive = head(json.dumps({"session": {"permission_level": "low"}}).encode())
    assert (await cluster.sent("POST", "/api/sessions/restore?id=kept", body=archive))[
        "node"
    ] == "a"


@pytest.mark.parametrize(
    "archive", [b"", b"x" * 100, b"x" * 5000, head(b"{")[:300], head(b"x" * 20_000)[:600]]
)
async def test_what_is_no_snapshot_a_node_refuses(cluster: Cluster, archive: bytes) -> None:
    found = await cluster.sent("POST", "/api/sessions/restore", body=archive)
    assert cluster.nodes[found["node"]].got[-1][2] == archive
