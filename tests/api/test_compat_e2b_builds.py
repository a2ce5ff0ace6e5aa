"""Templates that E2B's clients build, over plain HTTP as its SDKs use it."""

import json
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from yarl import URL

from api.compat.e2b.builds.builds import MOST_BUILDS
from api.compat.e2b.builds.built import Built, Start, texts
from api.compat.e2b.builds.steps import HOME
from orchestrator.sandbox.named_snapshots import snapshot_rows
from orchestrator.sandbox.named_snapshots.snapshot_rows import NamedSnapshot
from orchestrator.settings.settings import Settings
from tests.api.conftest import IMAGE, OTHER_KEY, Api
from tests.support.e2b import BASE, refused, sent, told
from tests.support.fake_agent import Play
from tests.support.until import pause, until

HOUR = "T09:30:12.482113Z"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"compat": ("e2b",)})


async def requested(api: Api, name: str = "web", **members: Any) -> str:
    body = {"name": name, **members}
    shown = await told(api, "POST", "/v3/templates", status=202, json=body)
    return f"/v2/templates/{shown['templateID']}/builds/{shown['buildID']}"


async def status(api: Api, build: str) -> dict[str, Any]:
    found: dict[str, Any] = await told(api, "GET", build.removeprefix("/v2") + "/status")
    return found


async def address(api: Api, files: str = "ab") -> str:
    shown = await told(api, "GET", f"/templates/web/files/{files}", status=201)
    assert shown["present"] is False
    return URL(shown["url"]).path_qs.removeprefix(BASE)


async def kept(api: Api, name: str, *tags: str, at: str) -> str:
    """A build that is complete; returns its id."""
    start, base = Start(HOME, {}, None, None), {"permission_level": "high"}
    build = Built("", str(uuid4()), name, {}, tags, at, base, start)
    row = NamedSnapshot(
        f"snap-{build.build_id[:8]:0>16}", "operator", f"e2b-{build.build_id}", "box", "key", at,
        *(9, 8, 7), sha256="0" * 64, method="copy", metadata=json.dumps(texts(build)), ready=True,
    )  # fmt: skip
    await api.plane.database.write(partial(snapshot_rows.add, snapshot=row))
    return build.build_id


async def tags_of(api: Api, name: str = "web") -> dict[str, str]:
    shown = await told(api, "GET", f"/templates/{name}/tags")
    return {each["tag"]: each["buildID"] for each in shown}


async def over(api: Api, build: str) -> dict[str, Any]:
    """How the build stands at its end."""
    turns = 0
    while (shown := await status(api, build))["status"] in ("waiting", "building"):
        turns += 1
        await pause(turns)
    return shown


async def failed(api: Api, build: str, **body: Any) -> dict[str, Any]:
    """Why a build failed that has begun."""
    response = await sent(api, "POST", build, json=body)
    assert response.status == 202, await response.text()
    assert await response.read() == b""

    shown = await over(api, build)
    assert shown["status"] == "error"
    assert not api.plane.sessions.registry.live
    reason: dict[str, Any] = shown["reason"]
    return reason


async def test_a_build_is_requested_begun_once_and_followed(api: Api) -> None:
    shown = await told(
        api, "POST", "/v3/templates", status=202, json={"name": "Web:v1", "tags": ["new", "v1"]}
    )
    assert (shown["templateID"], shown["names"]) == ("web", ["web"])
    assert shown["tags"] == ["v1", "new"]
    build = f"/v2/templates/web/builds/{shown['buildID']}"
    assert (await status(api, build))["status"] == "waiting"
    # In these sandboxes, no workspace is an image: there is nothing that a snapshot could keep.
    reason = await failed(api, build, steps=[])
    assert (reason["step"], "PADDOCK_WORKSPACE_QUOTA" in reason["message"]) == ("finalize", True)
    assert "begun already" in await refused(api, 409, "POST", build, json={})
    entries = (await status(api, build))["logEntries"]
    assert [each["level"] for each in entries] == ["info", "error"]
    later = await told(api, "GET", build.removeprefix("/v2") + "/status?logsOffset=1")
    assert later["logEntries"] == entries[1:]


async def test_what_can_not_be_carried_out_is_refused_and_makes_nothing(api: Api) -> None:
    build = await requested(api)
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"fromImage": "nothing:1"}, "paddock images add nothing:1"),
        ({"fromTemplate": "nothing"}, "there is no template nothing"),
        ({"fromImageRegistry": {"type": "registry"}}, "fromImageRegistry"),
        ({"steps": [{"type": "WORKDIR", "args": ["/app"]}]}, "/home/user only"),
        ({"steps": [{"type": "FLY"}]}, "steps"),
        ({"steps": [{"type": "RUN", "args": ["x"]}] * 257}, "steps"),
        ({"startCmd": "x" * 70_000}, "start"),
        ({"steps": [{"type": "RUN", "args": ["x"], "force": 1}]}, "force"),
        ({"force": "yes"}, "force"),
    ]
    for body, said in refusals:
        expected = 404 if "fromTemplate" in body else 400
        message = await refused(api, expected, "POST", build, json=body)
        assert said.lower() in message.lower(), message
    assert (await status(api, build))["status"] == "waiting"
    assert not api.engine.containers
    wrong: list[dict[str, Any]] = [{}, {"name": "team/web"}, {"name": "web", "tags": ["a b"]}]
    for body in (*wrong, {"name": "w" * 200}):
        await refused(api, 400, "POST", "/v3/templates", json=body)
    for name in ("base", "low"):
        await refused(api, 409, "POST", "/v3/templates", json={"name": name})


async def test_tags_are_changed_after_the_build_and_on_record(api: Api) -> None:
    old = await kept(api, "web", "v1", "default", at=f"2026-03-04{HOUR}")
    new = await kept(api, "web", "v2", "default", at=f"2026-03-05{HOUR}")
    await kept(api, "other", "default", at=f"2026-03-06{HOUR}")
    assert await tags_of(api) == {"v1": old, "v2": new, "default": new}
    body: dict[str, Any] = {"target": "Web:v1", "tags": ["default", "stable", "stable"]}
    shown = await told(api, "POST", "/templates/tags", status=201, json=body)
    assert shown == {"tags": ["default", "stable"], "buildID": old}
    assert await tags_of(api) == {"v1": old, "v2": new, "default": old, "stable": old}
    for name in ("web", "web:stable"):
        assert (await sent(api, "GET", f"/templates/aliases/{name}")).status == 200
    body = {"name": "web", "tags": ["default", "v1"]}
    await told(api, "DELETE", "/templates/tags", status=204, json=body)
    assert await tags_of(api) == {"v2": new, "stable": old}
    await refused(api, 404, "GET", "/templates/aliases/web")
    assert set(await tags_of(api, "other")) == {"default"}
    found = (await api.json("GET", "/api/audit?operation=snapshot.change"))["items"]
    assert {(each["actor"], each["args"]["asked_as"]) for each in found} == {
        ("operator", "e2b POST /templates/tags"),
        ("operator", "e2b DELETE /templates/tags"),
    }


async def test_tags_that_can_not_be_changed_change_nothing(api: Api) -> None:
    build = await kept(api, "web", "v1", at=f"2026-03-04{HOUR}")
    assign: list[tuple[int, Any, str]] = [
        (400, {"target": "web"}, "tags"),
        (400, {"target": "web:v1", "tags": []}, "tags"),
        (400, {"target": "web:v1", "tags": ["a b"]}, "tags"),
        (400, {"target": "web:v1", "tags": ["a"] * 17}, "tags"),
        (400, {"target": "team/web", "tags": ["a"]}, "target"),
        (400, [], "object"),
        (404, {"target": "web", "tags": ["a"]}, "there is no template web that was built"),
        (404, {"target": "high", "tags": ["a"]}, "there is no template high that was built"),
    ]
    for status, body, said in assign:
        message = await refused(api, status, "POST", "/templates/tags", json=body)
        assert said in message, message
    for status, body, said in (
        (400, {"name": "web"}, "tags"),
        (404, {"name": "web", "tags": ["v1", "v2"]}, "the template web has no tag v2"),
        (404, {"name": "none", "tags": ["v1"]}, "there is no template none"),
    ):
        message = await refused(api, status, "DELETE", "/templates/tags", json=body)
        assert said in message, message
    for method, body in (("POST", {"target": "web:v1"}), ("DELETE", {"name": "web"})):
        named = {**body, "tags": ["v1"]}
        await refused(api, 404, method, "/templates/tags", json=named, key=OTHER_KEY)
    await refused(api, 400, "PATCH", "/templates/tags", json={})
    assert await tags_of(api) == {"v1": build}
    assert (await api.json("GET", "/api/audit?operation=snapshot.change"))["items"] == []


async def test_files_that_are_missing_fail_the_step(api: Api) -> None:
    build = await requested(api)
    step = {"type": "COPY", "args": ["a", "b"], "filesHash": "ab"}
    reason = await failed(api, build, fromImage=IMAGE, steps=[step])
    assert (reason["step"], "not uploaded" in reason["message"]) == ("1", True)


async def test_what_does_not_become_ready_fails_the_build(api: Api) -> None:
    api.agents.plays["bash"] = Play(exit_code=7)
    reason = await failed(api, await requested(api), fromTemplate="high", readyCmd="ready")
    assert (reason["step"], "exit code 7" in reason["message"]) == ("finalize", True)


async def test_an_address_takes_files_of_its_build_only(api: Api) -> None:
    await requested(api)
    path = await address(api)
    response = await api.client.put(BASE + path, data=b"x" * 1000)
    assert response.status == 200, await response.text()
    shown = await told(api, "GET", "/templates/web/files/ab", status=201)
    assert shown["present"] is True
    for wrong in (
        path[:-1],
        path.replace("/ab?", "/cd?"),
        path.replace("/web/", "/other/"),
        path.partition("?")[0],
    ):
        response = await api.client.put(BASE + wrong, data=b"y")
        assert response.status == 401, wrong
    await refused(api, 404, "GET", "/templates/other/files/ab")
    assert "paddock" not in (await response.text()).lower()


async def test_nobody_else_sees_a_build(api: Api) -> None:
    build = await requested(api)
    for method, path in (
        ("GET", build.removeprefix("/v2") + "/status"),
        ("POST", build),
        ("GET", "/templates/web/files/ab"),
        ("GET", "/templates/web/tags"),
        ("DELETE", "/templates/web"),
    ):
        arguments: dict[str, Any] = {"json": {}} if method == "POST" else {}
        await refused(api, 404, method, path, key=OTHER_KEY, **arguments)
    assert (await status(api, build))["status"] == "waiting"


async def test_the_oldest_gives_way_and_its_files_are_forgotten(api: Api) -> None:
    first = await requested(api)
    path = await address(api)
    assert (await api.client.put(BASE + path, data=b"x")).status == 200
    for _ in range(MOST_BUILDS):
        await requested(api, "other")
    await refused(api, 404, "GET", first.removeprefix("/v2") + "/status")
    assert (await api.client.put(BASE + path, data=b"y")).status == 401


async def test_at_the_end_of_its_key_nothing_goes_on(api: Api) -> None:
    key = (await api.json("POST", "/api/keys", status=201, json={"name": "ci"}))["key"]
    shown = await told(api, "POST", "/v3/templates", status=202, json={"name": "web"}, key=key)
    path = f"/v2/templates/web/builds/{shown['buildID']}"
    api.agents.plays["bash"] = Play(holds=True)
    step = {"type": "RUN", "args": ["sleep 100"]}
    body = {"fromTemplate": "high", "steps": [step]}
    assert (await sent(api, "POST", path, json=body, key=key)).status == 202
    await until(lambda: bool(api.agents.by_run_dir))
    await api.agent.asked("exec")
    assert len(api.plane.sessions.registry.live) == 1
    assert (await api.call("DELETE", "/api/keys/ci")).status == 204
    await until(lambda: not api.plane.sessions.registry.live and not api.engine.containers)


async def test_a_build_that_waits_ends_with_its_key(api: Api) -> None:
    key = (await api.json("POST", "/api/keys", status=201, json={"name": "ci"}))["key"]
    await told(api, "POST", "/v3/templates", status=202, json={"name": "web"}, key=key)
    where = await told(api, "GET", "/templates/web/files/ab", status=201, key=key)
    path = URL(where["url"]).path_qs
    assert (await api.client.put(path, data=b"x")).status == 200
    assert (await api.call("DELETE", "/api/keys/ci")).status == 204
    assert (await api.client.put(path, data=b"y")).status == 401
