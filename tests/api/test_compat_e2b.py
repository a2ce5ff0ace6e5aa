"""E2B's interface outside of sandboxes, over plain HTTP as its SDKs use it."""

from datetime import datetime
from io import BytesIO
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from api.compat.e2b.views import VERSION
from api.compat.enabled import OWN_PORTS
from api.views import sessions as sessions_views
from orchestrator.control_plane import ControlPlane
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.operate.observe.usage import Sample
from orchestrator.rules.access.keys import digest
from orchestrator.settings.settings import Settings
from orchestrator.state.session import Session
from tests.api.conftest import IMAGE, OPERATOR_KEY, OTHER_KEY, Api, served
from tests.support.e2b import SANDBOXES, made, refused, seconds_left, sent, told
from tests.support.fake_agent import Agents
from tests.support.previews import previews


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"compat": ("e2b",)})


async def test_a_sandbox_is_a_session_of_the_key(api: Api) -> None:
    sandbox = await made(api, metadata={"user": "Anna & Co"}, envVars={"LANG": "C"}, timeout=120)
    assert (sandbox["templateID"], sandbox["envdVersion"]) == ("base", VERSION)
    path = f"/sandboxes/{sandbox['sandboxID']}"
    shown = await told(api, "GET", path)
    assert (shown["state"], shown["metadata"]) == ("running", {"user": "Anna & Co"})
    assert 100 < seconds_left(shown) <= 121
    assert (shown["cpuCount"], shown["memoryMB"]) == (1, 1024)
    session = await api.json(
        "GET", f"/api/sessions/{sandbox['sandboxID']}", key=sandbox["envdAccessToken"]
    )
    assert (session["owner"], session["permission_level"]) == ("operator", "medium")
    assert session["workspace_path"] == "/home/user"
    assert await told(api, "DELETE", path, status=204) is None
    assert "not found" in await refused(api, 404, "DELETE", path)
    assert "not found" in await refused(api, 404, "GET", path)
    assert not api.engine.containers


async def test_what_a_sandbox_is_made_from(api: Api) -> None:
    for name in ("base", "base:default", "code-interpreter-v1", IMAGE):
        await made(api, name)
    low = await made(api, "low")
    session = await api.json("GET", f"/api/sessions/{low['sandboxID']}")
    assert (session["permission_level"], low["templateID"]) == ("low", "low")
    high = await made(api, metadata={"paddock.level": "high"})
    session = await api.json("GET", f"/api/sessions/{high['sandboxID']}")
    assert session["permission_level"] == "high"
    count = len(api.engine.containers)
    body: dict[str, Any] = {"templateID": "nothing-like-it"}
    message = await refused(api, 404, "POST", SANDBOXES, json=body)
    assert "nothing-like-it" in message
    body = {"templateID": "base", "metadata": {"paddock.level": "root"}}
    assert "low|medium|high" in await refused(api, 400, "POST", SANDBOXES, json=body)
    assert len(api.engine.containers) == count


async def test_refusals_have_rule_and_remedy(api: Api, settings: Settings) -> None:
    entry = '[[keys]]\nname = "narrow"\nrole = "operator"\nmax_level = "low"\n'
    key = "pdk_narrow-key-of-the-tests"
    with settings.keys_path.open("a") as file:
        file.write(f'{entry}sha256 = "{digest(key)}"\n')
    await api.plane.reload.look()
    body = {"templateID": "high"}
    message = await refused(api, 403, "POST", SANDBOXES, json=body, key=key)
    assert "(rule key-max-level)" in message
    assert "Use a level that is not higher" in message
    low = await made(api, key=key)
    assert (await api.json("GET", f"/api/sessions/{low['sandboxID']}"))["permission_level"] == "low"


async def test_only_its_key_reaches_it(api: Api) -> None:
    sandbox = await made(api)
    path = f"/sandboxes/{sandbox['sandboxID']}"
    requests: list[tuple[str, str, Any]] = [
        ("GET", path, None),
        ("DELETE", path, None),
        ("POST", path + "/timeout", {"timeout": 1}),
        ("POST", path + "/refreshes", {}),
        ("POST", path + "/pause", {}),
        ("POST", path + "/resume", {}),
        ("POST", path + "/connect", {"timeout": 9}),
        ("POST", "/v2" + path + "/connect", {"timeout": 9}),
        ("GET", path + "/metrics", None),
        ("PUT", path + "/network", {"denyOut": ["0.0.0.0/0"]}),
        ("POST", path + "/snapshots", {"name": "x"}),
        ("POST", path + "/fork", {"count": 2}),
    ]
    before = await told(api, "GET", path)
    for method, each, body in requests:
        await refused(api, 404, method, each, json=body, key=OTHER_KEY)
        await refused(api, 401, method, each, json=body, key="pdk_nobody's")
        message = await refused(api, 401, method, each, json=body, key=None)
        assert "X-API-KEY" in message
    assert await told(api, "GET", "/v2/sandboxes", key=OTHER_KEY) == []
    handle = sandbox["envdAccessToken"]
    assert (await told(api, "GET", path, key=handle))["sandboxID"] == sandbox["sandboxID"]
    for method, each, body in requests[1:]:
        await refused(api, 403, method, each, json=body, key=handle)
    assert await told(api, "GET", path) | {"endAt": None} == before | {"endAt": None}
    bearer = {"Authorization": f"Bearer {OPERATOR_KEY}"}
    await told(api, "GET", path, key=None, headers=bearer)


async def listed(api: Api, **query: str) -> tuple[list[str], str | None]:
    response = await sent(api, "GET", "/v2/sandboxes?" + urlencode(query))
    body = await response.json()
    assert response.status == 200, body
    return [each["sandboxID"] for each in body], response.headers.get("X-Next-Token")


async def test_lists_by_state_metadata_template_and_time(api: Api) -> None:
    texts = {"user": "Anna & Co", "shard": "4"}
    made_ones = [(await made(api, metadata=texts))["sandboxID"] for _ in range(3)]
    other = (await made(api, "low"))["sandboxID"]
    await told(api, "POST", f"/sandboxes/{made_ones[0]}/pause", status=204)
    newest = [other, *reversed(made_ones)]
    # What the key has made by other means is not a sandbox of these clients.
    await api.session(key=OPERATOR_KEY)
    assert await listed(api) == (newest, None)
    assert await listed(api, order="asc") == (newest[::-1], None)
    # The SDKs encode names and texts twice.
    pairs = urlencode({quote(name): quote(text) for name, text in texts.items()})
    assert (await listed(api, metadata=pairs))[0] == newest[1:]
    assert (await listed(api, metadata="user%3D=nobody"))[0] == []
    assert (await listed(api, state="paused"))[0] == made_ones[:1]
    assert (await listed(api, state="running"))[0] == newest[:3]
    assert (await listed(api, template="low"))[0] == [other]
    shown = await told(api, "GET", f"/sandboxes/{other}")
    assert (await listed(api, startedAfter=shown["startedAt"]))[0] == [other]
    for order, wanted in (("desc", newest), ("asc", newest[::-1])):
        page, token = await listed(api, limit="3", order=order)
        assert token is not None
        # A sandbox that has gone meanwhile does not disturb the next page.
        assert (page, await listed(api, limit="3", order=order, nextToken=token)) == (
            wanted[:3],
            (wanted[3:], None),
        )
    await told(api, "DELETE", f"/sandboxes/{other}", status=204)
    assert (await listed(api))[0] == newest[1:]
    for query in (
        "state=gone",
        "limit=0",
        "order=up",
        "nextToken=%FF",
        "nextToken=é",
        "metadata=x",
    ):
        await refused(api, 400, "GET", "/v2/sandboxes?" + query)


async def test_a_page_of_sandboxes_reads_no_other_sessions(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        await made(api)
    shown: list[str] = []
    view = sessions_views.session

    def counting(session: Session, **more: Any) -> Any:
        shown.append(session.id)
        return view(session, **more)

    monkeypatch.setattr(sessions_views, "session", counting)
    page, token = await listed(api, limit="2")
    assert (page, token is not None) == (shown, True)
    assert len(page) == 2
    # What is older than all that are wanted is not read at all.
    shown.clear()
    assert await listed(api, limit="2", startedAfter="2100-01-01T00:00:00Z") == ([], None)
    assert len(shown) == 2


async def test_metrics_have_a_history(api: Api) -> None:
    sandbox = await made(api)
    path = f"/sandboxes/{sandbox['sandboxID']}/metrics"
    session = api.plane.sessions.registry.get(sandbox["sandboxID"])
    assert session is not None
    usage = api.plane.usage
    await usage.sample()
    samples = usage.of(session).samples
    samples.clear()
    usage.round = 3
    samples.extend([Sample(50.0, 7, 1), None, Sample(25.0, 9, 1)])
    shown = await told(api, "GET", path)
    assert [(each["cpuUsedPct"], each["memUsed"]) for each in shown] == [(50.0, 7), (25.0, 9)]
    first, last = (each["timestampUnix"] for each in shown)
    assert last - first == 20
    assert datetime.fromisoformat(shown[0]["timestamp"]).timestamp() // 1 == first
    assert (shown[0]["memTotal"], shown[0]["cpuCount"]) == (2**30, 1)
    assert await told(api, "GET", f"{path}?start={last}") == shown[1:]
    assert await told(api, "GET", f"{path}?end={first}") == shown[:1]
    await refused(api, 400, "GET", f"{path}?start=now")


async def test_network_narrows_what_the_level_permits(api: Api) -> None:
    # At medium nothing limits a level without a network, so every denial holds already.
    sandbox = await made(api, allow_internet_access=False)
    path = f"/sandboxes/{sandbox['sandboxID']}"
    level = api.plane.levels["medium"]
    assert level.network == "egress"
    egress = f"/api/sessions/{sandbox['sandboxID']}/egress"

    async def only() -> Any:
        rules = (await api.json("GET", egress))["only"]
        return (
            rules["allow"] and [each["host"] or each["cidr"] for each in rules["allow"]],
            [each["host"] or each["cidr"] for each in rules["deny"]],
        )

    assert await only() == ([], [])
    network: dict[str, Any] = {"denyOut": ["0.0.0.0/0"], "allowOut": ["pypi.org", "8.8.8.8"]}
    await told(api, "PUT", path + "/network", status=204, json=network)
    assert await only() == (["pypi.org", "8.8.8.8/32"], [])
    await told(api, "PUT", path + "/network", status=204, json={"denyOut": ["10.0.0.0/8"]})
    assert await only() == (None, ["10.0.0.0/8"])
    await told(api, "PUT", path + "/network", status=204, json={})
    assert await only() == (None, [])
    for body in (
        {"denyOut": ["example.com"]},
        {"denyOut": ["0.0.0.0/0"], "allowOut": ["a/b"]},
        {"rules": {"example.com": [{"transform": {"headers": {"A": "b"}}}]}},
        {"egressProxy": {"address": "127.0.0.1:1080"}},
        {"denyOut": "0.0.0.0/0"},
        {"denyOut": ["10.0.0.0/8"] * 101},
    ):
        await refused(api, 400, "PUT", path + "/network", json=body)
    assert await only() == (None, [])


async def test_templates_are_listed_and_found(api: Api) -> None:
    for path in ("/templates", "/v2/templates"):
        names = {each["templateID"] for each in await told(api, "GET", path)}
        assert {"base", IMAGE} <= names
    assert (await told(api, "GET", "/templates/aliases/base"))["templateID"] == "base"
    await refused(api, 404, "GET", "/templates/aliases/nothing")
    message = await refused(api, 400, "PATCH", "/templates/base", json={"public": True})
    assert "another build" in message
    assert "paddock images" not in await refused(api, 404, "DELETE", "/templates/nothing")
    assert "paddock secrets" in await refused(api, 404, "GET", "/secrets")


async def test_nothing_is_elsewhere(api: Api) -> None:
    for method, path in (("GET", "/"), ("POST", "/v9/sandboxes"), ("PATCH", "/v2/sandboxes")):
        await refused(api, 404, method, path)
    response = await api.client.get("/compat/swerex/x")
    assert response.status == 404


async def test_only_where_the_operator_enables_it(
    settings: Settings, engine: FakeEngine, agents: Agents
) -> None:
    closed = settings.model_copy(update={"compat": ()})
    plane = await ControlPlane.open(closed, engine)
    try:
        async with served(plane, engine, agents) as api:
            response = await sent(api, "GET", "/v2/sandboxes")
            assert (response.status, response.content_type) == (404, "application/problem+json")
    finally:
        await plane.close()


async def test_volumes(api: Api) -> None:
    created = await told(api, "POST", "/volumes", status=201, json={"name": "cache"})
    assert (created["volumeID"], created["name"]) == ("cache", "cache")
    assert await told(api, "GET", "/volumes") == [{"volumeID": "cache", "name": "cache"}]
    assert (await told(api, "GET", "/volumes/cache"))["name"] == "cache"
    assert await told(api, "GET", "/volumes", key=OTHER_KEY) == []
    for method in ("GET", "DELETE"):
        await refused(api, 404, method, "/volumes/cache", key=OTHER_KEY)
    await refused(api, 409, "POST", "/volumes", json={"name": "cache"})
    await refused(api, 400, "POST", "/volumes", json={"name": "a/b"})
    sandbox = await made(api, volumeMounts=[{"name": "cache", "path": "/data/cache"}])
    shown = await told(api, "GET", f"/sandboxes/{sandbox['sandboxID']}")
    assert shown["volumeMounts"] == [{"name": "cache", "path": "/data/cache"}]
    await refused(api, 409, "DELETE", "/volumes/cache")
    await refused(api, 400, "GET", "/volumecontent/cache/dir")
    await told(api, "DELETE", f"/sandboxes/{sandbox['sandboxID']}", status=204)
    await told(api, "DELETE", "/volumes/cache", status=204)
    assert await told(api, "GET", "/volumes") == []


async def test_bodies_and_texts_are_bounded(api: Api) -> None:
    large = b'{"templateID": "base", "metadata": {"x": "' + b"x" * (3 * 2**20) + b'"}}'
    await refused(api, 413, "POST", SANDBOXES, data=BytesIO(large))
    wrong: tuple[dict[str, Any], ...] = (
        {"metadata": {"x": "x" * 8193}},
        {"metadata": {str(number): "" for number in range(65)}},
        {"metadata": {"x": 1}},
        {"envVars": {"a b": "x"}},
        {"timeout": 10**10},
        {"templateID": "x" * 256},
        {"volumeMounts": [{"name": "x"}]},
        {"mcp": {"github": {}}},
        {"network": {"egressProxy": {"address": "x"}}},
    )
    for members in wrong:
        body = {"templateID": "base", **members}
        await refused(api, 400, "POST", SANDBOXES, json=body)
    assert not api.engine.containers


async def test_rates_are_those_of_this_api(
    settings: Settings, engine: FakeEngine, agents: Agents
) -> None:
    few = settings.model_copy(update={"key_requests_per_second": 0.001})
    plane = await ControlPlane.open(few, engine)
    try:
        async with served(plane, engine, agents) as api:
            sandbox = await made(api)
            response = await sent(api, "GET", "/v2/sandboxes")
            while response.status == 200:
                response = await sent(api, "GET", "/v2/sandboxes")
            assert response.status == 429
            assert int(response.headers["Retry-After"]) > 0
            assert (await response.json())["code"] == 429
            # What stops something is answered all the same.
            path = f"/sandboxes/{sandbox['sandboxID']}"
            await told(api, "DELETE", path, status=204)
            await refused(api, 429, "DELETE", path)
    finally:
        await plane.close()


async def test_everything_is_on_record(api: Api) -> None:
    sandbox = await made(api, metadata={"user": "Anna"})
    path = f"/sandboxes/{sandbox['sandboxID']}"
    await told(api, "POST", path + "/timeout", status=204, json={"timeout": 50})
    await told(api, "POST", path + "/pause", status=204)
    await told(api, "DELETE", path, status=204)
    page = await api.json("GET", f"/api/sessions/{sandbox['sandboxID']}/audit")
    events = [(each["operation"], each["actor"]) for each in page["items"]]
    for operation in ("session.create", "session.settings", "session.pause", "session.close"):
        assert (operation, "operator") in events, events
    created = next(each for each in page["items"] if each["operation"] == "session.create")
    assert created["args"]["metadata"] == {"user": "Anna"}
    names = {each["operation"]: each["args"].get("asked_as") for each in page["items"]}
    assert names["session.create"] == "e2b POST /v2/sandboxes"
    assert names["session.pause"] == "e2b POST /sandboxes/{session_id}/pause"
    assert names["session.close"] == "e2b DELETE /sandboxes/{session_id}"


async def test_host_names_lead_inside(api: Api) -> None:
    own_ports = api.server.app[OWN_PORTS]
    async with previews(api.plane, own_ports=own_ports) as shown:
        one, two = await made(api), await made(api)
        handle = one["envdAccessToken"]
        assert one["domain"] == f"localhost:{shown.server.port}"

        async def status(sandbox: dict[str, Any], token: str, port: int = 49983) -> int:
            host = f"{port}-{sandbox['sandboxID']}.{sandbox['domain']}"
            # The host name decides, not what a client says besides.
            sent = {"Host": host, "X-Access-Token": token, "E2b-Sandbox-Id": one["sandboxID"]}
            return (await shown.get("/envs", headers=sent)).status

        assert await status(one, handle) == 200
        assert await status(one, OPERATOR_KEY) == 200
        assert await status(two, OPERATOR_KEY, 49999) == 200
        older = one | {"sandboxID": f"{one['sandboxID']}-{one['clientID']}"}
        assert await status(older, handle) == 200
        for sandbox, token in ((two, handle), (one, OTHER_KEY), (one, "pdk_nobody's")):
            assert await status(sandbox, token) in (401, 502)
        # So does the address itself, where the client says which sandbox is meant.
        sent = {"X-Access-Token": handle, "E2b-Sandbox-Id": one["sandboxID"]}
        answer = await shown.get("/envs", headers=sent)
        assert (answer.status, answer.headers["X-Content-Type-Options"]) == (200, "nosniff")
        assert (await shown.get("/envs", headers=sent | {"X-Access-Token": "x"})).status == 401
        # Other ports are as they are without the protocol.
        assert await status(one, handle, 8000) == 401
        elsewhere = {"Host": f"49983-{one['sandboxID']}.example.org", "X-Access-Token": handle}
        assert (await shown.get("/envs", headers=elsewhere)).status == 421
