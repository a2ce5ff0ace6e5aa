"""Volumes over HTTP: whose they are, what is refused, how they count, and what is on record."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.settings.settings import Settings
from paddock import ConflictError, Paddock
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, OTHER_KEY, Api
from tests.support.cases import each
from tests.support.cli import run_beside

MIB = 1024 * 1024
VOLUMES = "/api/volumes"
BODY: dict[str, Any] = {"name": "cache", "size_bytes": 16 * MIB}
USE: dict[str, Any] = {"name": "cache", "path": "/data/cache"}


LOW = Path(__file__).parents[2] / "orchestrator" / "rules" / "policy" / "levels" / "low.toml"


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    """Plain directories, which need no device, and two more levels."""
    text = LOW.read_text()
    reads = text.replace("[confinement]", '[confinement]\nread = ["/srv/model"]')
    slow = f"{text}\n[rates]\ndisk_write = 4194304\n"
    for name, rank, level in (("slow", 110, slow), ("model", 120, reads)):
        (tmp_path / f"{name}.toml").write_text(level.replace("rank = 100", f"rank = {rank}"))
    return settings.model_copy(
        update={
            "workspace_quota": "none",
            "key_max_workspace_bytes": 64 * 1024 * MIB,
            "levels_dir": tmp_path,
        }
    )


async def made(api: Api, key: str = OPERATOR_KEY, **more: Any) -> dict[str, Any]:
    return await api.json("POST", VOLUMES, json={**BODY, **more}, key=key, status=201)


async def names(api: Api, key: str, query: str = "") -> list[tuple[str, str]]:
    items = (await api.json("GET", VOLUMES + query, key=key))["items"]
    return [(item["key"], item["name"]) for item in items]


async def test_a_volume_from_its_creation_to_its_removal(api: Api) -> None:
    created = await made(api)
    assert (created["key"], created["size_bytes"], created["sessions"]) == (
        *("operator", 16 * MIB),
        [],
    )
    session = await api.session(key=OPERATOR_KEY, id="fix", volumes=[USE])
    assert session["volumes"] == [{**USE, "read_only": False}]
    path = f"{VOLUMES}/cache"
    shown = await api.json("GET", path, key=OPERATOR_KEY)
    assert shown["sessions"] == [{"id": "fix", "path": "/data/cache", "read_only": False}]
    problem = await api.problem(409, "conflict", "DELETE", path, key=OPERATOR_KEY)
    assert problem["detail"] == "volume cache is used by fix: close it first"
    again = await api.problem(409, "conflict", "POST", VOLUMES, json=BODY, key=OPERATOR_KEY)
    assert again["detail"] == "there is a volume cache already"
    await api.json("DELETE", "/api/sessions/fix", key=OPERATOR_KEY)
    removed = await api.json("DELETE", path, key=OPERATOR_KEY)
    assert removed == {**created, "used_bytes": removed["used_bytes"]}
    await api.problem(404, "not_found", "GET", path, key=OPERATOR_KEY)
    for query in ("operation=volume.create", "operation=volume.remove"):
        (event,) = (await api.json("GET", f"/api/audit?{query}"))["items"]
        assert (event["actor"], event["decision"]) == ("operator", "allow")
        assert (event["args"]["name"], event["args"]["key"]) == ("cache", "operator")
    (event,) = (await api.json("GET", "/api/sessions/fix/audit?operation=session.create"))["items"]
    assert event["args"]["volumes"] == [{**USE, "read_only": False}]
    await made(api)  # the name is free


async def test_other_keys_neither_see_nor_have_it(api: Api) -> None:
    await made(api)
    assert await names(api, OTHER_KEY) == await names(api, OTHER_KEY, "?key=operator") == []
    for query in ("", "?key=operator"):
        path = f"{VOLUMES}/cache{query}"
        for method in ("GET", "DELETE"):
            problem = await api.problem(404, "not_found", method, path, key=OTHER_KEY)
            assert problem["detail"] == "there is no volume cache"
    body = {"id": "theirs", "volumes": [USE]}
    await api.problem(404, "not_found", "POST", "/api/sessions", json=body, key=OTHER_KEY)
    await api.problem(404, "not_found", "GET", "/api/sessions/theirs", key=OTHER_KEY)
    await made(api, OTHER_KEY)
    assert await names(api, OTHER_KEY) == [("other", "cache")]
    both = [("operator", "cache"), ("other", "cache")]
    assert await names(api, ADMIN_KEY) == both
    assert await names(api, ADMIN_KEY, "?key=other") == both[1:]
    await api.problem(404, "not_found", "DELETE", f"{VOLUMES}/cache", key=ADMIN_KEY)
    await api.json("DELETE", f"{VOLUMES}/cache?key=other", key=ADMIN_KEY)
    assert await names(api, ADMIN_KEY) == both[:1]


async def test_one_session_writes_at_a_time(api: Api) -> None:
    await made(api)
    await api.session(key=OPERATOR_KEY, id="writer", volumes=[USE])
    body = {"id": "second", "volumes": [USE]}
    problem = await api.problem(
        409, "conflict", "POST", "/api/sessions", json=body, key=OPERATOR_KEY
    )
    assert problem["detail"].startswith("session writer has volume cache for writing")
    await api.problem(404, "not_found", "GET", "/api/sessions/second", key=OPERATOR_KEY)
    for number in range(3):
        use = {**USE, "read_only": True}
        await api.session(key=OPERATOR_KEY, id=f"reader-{number}", volumes=[use])
    await api.json("DELETE", "/api/sessions/writer", key=OPERATOR_KEY)
    await api.session(key=OPERATOR_KEY, id="second", volumes=[USE])


async def test_a_page_follows_the_other(api: Api) -> None:
    for number in range(5):
        await made(api, name=f"v-{number}")
    found, cursor = [], ""
    while True:
        page = await api.json("GET", f"{VOLUMES}?limit=2{cursor}", key=OPERATOR_KEY)
        found += [item["name"] for item in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert found == [f"v-{number}" for number in range(5)]


@each(
    "body",
    [
        {"name": "a/b", "size_bytes": 16 * MIB},
        {"name": "", "size_bytes": 16 * MIB},
        {"name": "..", "size_bytes": 16 * MIB},
        {"name": "cache", "size_bytes": 16 * MIB - 1},
        {"name": "cache", "size_bytes": 2**60},
        {"name": "cache", "size_bytes": "16"},
        {"name": "cache"},
        {"size_bytes": 16 * MIB},
    ],
)
async def test_what_is_no_volume(api: Api, body: dict[str, Any]) -> None:
    problem = await api.problem(400, "validation_error", "POST", VOLUMES, json=body)
    assert problem["field"] in ("name", "size_bytes")
    assert await names(api, ADMIN_KEY) == []


@each(
    "uses",
    [
        [{"name": "cache"}],
        [{**USE, "path": "data"}],
        [{**USE, "path": "/workspace/cache"}],
        [{**USE, "path": "/usr/local/cache"}],
        [{**USE, "path": "/data/../etc"}],
        [USE, {**USE, "path": "/other"}],
        [USE, {"name": "more", "path": "/data"}],
        [{**USE, "read_only": 1}],
        [{**USE, "surplus": 1}],
        [{"name": f"v{number}", "path": f"/data/{number}"} for number in range(9)],
    ],
)
async def test_what_is_no_place(api: Api, uses: list[dict[str, Any]]) -> None:
    body = {"id": "refused", "volumes": uses}
    problem = await api.problem(400, "validation_error", "POST", "/api/sessions", json=body)
    assert problem["field"].startswith("volumes")
    assert (await api.json("GET", "/api/sessions"))["items"] == []


async def test_a_session_that_stages_only_reads(api: Api) -> None:
    await made(api, ADMIN_KEY)
    every = {"read_patterns": ["**/*"], "write_patterns": ["**/*"]}
    policy = {"world_rules": {**every, "read_only": False, "proposal_mode": True}}
    body = {"policy": policy, "volumes": [USE]}
    problem = await api.problem(400, "validation_error", "POST", "/api/sessions", json=body)
    assert problem["field"] == "volumes"
    assert "stages its changes" in problem["detail"]


async def test_it_counts_as_a_workspace(api: Api) -> None:
    await made(api, size_bytes=40 * 1024 * MIB)
    body = {"name": "more", "size_bytes": 40 * 1024 * MIB}
    problem = await api.problem(429, "rate_limited", "POST", VOLUMES, json=body, key=OPERATOR_KEY)
    assert problem["limit"] == "max_workspace_bytes"
    assert await names(api, OPERATOR_KEY) == [("operator", "cache")]
    await api.json("DELETE", f"{VOLUMES}/cache", key=OPERATOR_KEY)
    await made(api, name="more", size_bytes=40 * 1024 * MIB)


async def test_children_do_not_have_it(api: Api) -> None:
    await made(api)
    await api.session(key=OPERATOR_KEY, id="parent", volumes=[USE])
    child = await api.json(
        "POST", "/api/sessions/parent/spawn", json={}, key=OPERATOR_KEY, status=201
    )
    assert child["volumes"] == []


async def test_a_handle_manages_none(api: Api) -> None:
    session = await api.session(key=OPERATOR_KEY)
    for method, path, body in (
        ("POST", VOLUMES, BODY),
        ("GET", VOLUMES, None),
        ("DELETE", f"{VOLUMES}/cache", None),
    ):
        await api.problem(403, "permission_denied", method, path, json=body, key=session["handle"])


async def test_the_client(api: Api) -> None:
    async with Paddock(str(api.server.make_url("")), OPERATOR_KEY) as paddock:
        created = await paddock.volumes.create("cache", size_bytes=16 * MIB)
        assert (created.key, created.sessions) == ("operator", [])
        session = await paddock.sessions.create(volumes=[{**USE, "read_only": True}])
        shown = await paddock.volumes.get("cache")
        assert [(use.id, use.read_only) for use in shown.sessions] == [(session.id, True)]
        with pytest.raises(ConflictError):
            await paddock.volumes.remove("cache")
        await session.close()
        assert [each.name for each in (await paddock.volumes.list()).items] == ["cache"]
        assert (await paddock.volumes.remove("cache")).name == "cache"
        assert (await paddock.volumes.list()).items == []


async def test_the_command_line(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_URL", str(api.server.make_url("")))
    monkeypatch.setenv("PADDOCK_KEY", OPERATOR_KEY)

    async def said(*words: str, status: int = 0) -> str:
        ended = await run_beside(*words)
        assert ended.status == status, ended
        return ended.out + ended.err

    await said("volumes", "create", "cache", "--size", "16MiB")
    await said("volumes", "create", "more", "--size", "1GiB")
    uses = ["--volume", "more:/data/more", "--volume", "cache:/data/cache:ro"]
    await said("sessions", "create", "--id", "fix", *uses)
    shown = await api.json("GET", "/api/sessions/fix", key=OPERATOR_KEY)
    assert shown["volumes"] == [
        {"name": "more", "path": "/data/more", "read_only": False},
        {"name": "cache", "path": "/data/cache", "read_only": True},
    ]
    assert "more:/data/more cache:/data/cache:ro" in await said("sessions", "show", "fix")
    assert "fix:ro" in await said("volumes", "list")
    assert "1.0 GiB" in await said("volumes", "show", "more")
    assert "NAME:PATH" in await said("sessions", "create", "--volume", "more", status=2)
    assert "--size" in await said("volumes", "create", "x", "--size", "1XB", status=2)
    await said("sessions", "close", "fix")
    await said("volumes", "remove", "more")
    assert await names(api, OPERATOR_KEY) == [("operator", "cache")]


async def test_an_explanation_knows_where_they_are(api: Api) -> None:
    await made(api)
    use = {**USE, "read_only": True}
    for number, (uses, writes) in enumerate((([], False), ([use], False), ([USE], True))):
        session = f"box-{number}"
        await api.session(key=OPERATOR_KEY, id=session, permission_level="low", volumes=uses)
        for command, allow in (
            ("cat /data/cache/a", bool(uses)),
            ("cp a /data/cache/b", writes),
            ("cat /data/other", False),
        ):
            path = "/api/policies/explain"
            body = {"session": session, "path": "/data/cache/a"}
            answer = await api.json("POST", path, json=body, key=OPERATOR_KEY)
            assert (answer["allow"], "written" in answer["message"]) == (bool(uses), writes)
            body = {"session": session, "command": command}
            answer = await api.json("POST", path, json=body, key=OPERATOR_KEY)
            assert (answer["allow"], answer["layers"] == []) == (allow, allow), (uses, command)


@each(
    ("members", "reason"),
    [
        ({"permission_level": "slow"}, "limits the rate"),
        ({"permission_level": "model", "volumes": [{**USE, "path": "/srv"}]}, "overlaps with"),
        ({"consume": {"entries": []}}, "can't be given with consume"),
    ],
)
async def test_sessions_that_can_have_none(api: Api, members: dict[str, Any], reason: str) -> None:
    body = {"id": "refused", "volumes": [USE], **members}
    problem = await api.problem(400, "validation_error", "POST", "/api/sessions", json=body)
    assert (problem["field"], reason in problem["detail"]) == ("volumes", True), problem
    assert (await api.json("GET", "/api/sessions"))["items"] == []


async def test_a_level_that_can_not_have_it_changes_nothing(api: Api) -> None:
    await made(api, ADMIN_KEY)
    await api.session(id="fix", permission_level="low", volumes=[USE])
    settings = {"settings": {"permission_level": "slow"}}
    path = "/api/sessions/fix/settings"
    await api.problem(400, "validation_error", "PUT", path, json=settings)
    shown = await api.json("GET", "/api/sessions/fix")
    assert (shown["permission_level"], shown["status"]) == ("low", "active")
    await api.json("POST", "/api/sessions/fix/exec", json={"argv": ["ls"]})
