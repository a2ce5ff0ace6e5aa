"""Secrets that only the proxy has, set and removed over HTTP; no answer has a value."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.control_plane import ControlPlane
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.operate.backups.contents import PRIVATE
from orchestrator.record.secrets.proxy_secrets import MOST_SECRETS
from orchestrator.record.secrets.request_head import RequestHead
from orchestrator.record.secrets.sealer import KEY_FILE
from orchestrator.settings.operator_secrets import OperatorSecret
from orchestrator.settings.settings import Settings
from paddock import ConflictError, NotFoundError, Paddock, PermissionDeniedError
from paddock.contract.words import OUTSIDE_SECRET
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, OTHER_KEY, Api, served
from tests.support.cli import run_beside
from tests.support.egress import Names, NamesResolver, certificate, hello, level_with, web
from tests.support.fake_agent import Agents
from tests.support.restart import reopened

PATH = "/api/secrets/openai"
VALUE = "sk-canary-" + "4e8b" * 6
HOST = "api.example"
BODY: dict[str, Any] = {"value": VALUE, "hosts": [HOST], "variable": "KEY"}
RULES = f'\n[[egress.allow]]\nhost = "{HOST}"\ninspect = true\n'


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    for name, rank in (("out", 210), ("also", 220)):
        (tmp_path / f"{name}.toml").write_text(level_with(RULES, "high", rank))
    (tmp_path / "value").write_text(f"{VALUE}-configured")
    configured = OperatorSecret(
        file=tmp_path / "value", hosts=(HOST,), levels=("also",), keys=("other",)
    )
    changed = {"levels_dir": tmp_path, "secrets": {"configured": configured}}
    return settings.model_copy(update=changed)


async def put(api: Api, path: str = PATH, key: str = OPERATOR_KEY, **more: Any) -> dict[str, Any]:
    return await api.json("PUT", path, key=key, json={**BODY, **more})


async def names(api: Api, path: str = "/api/secrets", key: str = OPERATOR_KEY) -> list[str]:
    return [each["name"] for each in (await api.json("GET", path, key=key))["items"]]


async def out(api: Api, key: str = OPERATOR_KEY, **more: Any) -> dict[str, Any]:
    return await api.session(**{"key": key, "permission_level": "out", **more})


def sent(plane: ControlPlane, session_id: str, name: str = "openai", host: str = HOST) -> str:
    """What the host gets of a request that names the secret."""
    session = plane.sessions.registry.get(session_id)
    assert session is not None
    fields = ((b"Authorization", f"Bearer paddock:{name}".encode()),)
    head = RequestHead("GET", host, 443, "/", fields, secure=True)
    return plane.secrets.fill(session, head).headers[0][1].decode().removeprefix("Bearer ")


async def test_a_key_s_secret_is_for_its_sessions_only(api: Api) -> None:
    mine, theirs = await out(api), await out(api, OTHER_KEY)
    told = await put(api)
    assert (told["scope"], told["keys"], told["set_by"]) == ("key", ["operator"], "operator")
    assert (told["hosts"], told["lost"], told["levels"]) == ([HOST], False, None)
    assert sent(api.plane, mine["id"]) == VALUE
    assert sent(api.plane, mine["id"], host="other.example") == "paddock:openai"
    assert sent(api.plane, theirs["id"]) == "paddock:openai"
    assert await names(api) == ["openai"]
    assert await names(api, key=OTHER_KEY) == ["configured"]
    assert await names(api, key=ADMIN_KEY) == ["configured", "openai"]
    # The next request has the new value.
    again = await put(api, value=f"{VALUE}-2")
    assert again["created_at"] == told["created_at"] < again["set_at"]
    assert sent(api.plane, mine["id"]) == f"{VALUE}-2"
    await api.json("DELETE", PATH, key=OPERATOR_KEY)
    assert sent(api.plane, mine["id"]) == "paddock:openai"
    await api.problem(404, "not_found", "DELETE", PATH, key=OPERATOR_KEY)


async def test_an_admin_s_secret_is_for_all_a_level_s_or_a_key_s(api: Api) -> None:
    mine, theirs = await out(api), await out(api, OTHER_KEY)
    assert (await put(api, key=ADMIN_KEY))["scope"] == "instance"
    assert sent(api.plane, mine["id"]) == sent(api.plane, theirs["id"]) == VALUE
    await put(api, f"{PATH}?key=other", ADMIN_KEY, value=f"{VALUE}-theirs", levels=["out"])
    assert sent(api.plane, theirs["id"]) == f"{VALUE}-theirs"
    assert sent(api.plane, mine["id"]) == VALUE
    # An operator sees what concerns it, and changes only its own.
    assert await names(api) == ["openai"]
    await api.problem(404, "not_found", "DELETE", PATH, key=OPERATOR_KEY)
    for method, more in (("PUT", {"json": BODY}), ("DELETE", {})):
        path = f"{PATH}?key=other"
        problem = await api.problem(
            403, "permission_denied", method, path, key=OPERATOR_KEY, **more
        )
        assert problem["field"] == "key"
    problem = await api.problem(
        400, "validation_error", "PUT", f"{PATH}?key=nobody", json=BODY, key=ADMIN_KEY
    )
    assert problem["field"] == "key"
    await api.json("DELETE", f"{PATH}?key=other")
    assert sent(api.plane, theirs["id"]) == VALUE


async def test_a_session_s_secret_ends_with_it(api: Api) -> None:
    first, second = await out(api), await out(api)
    path = f"/api/sessions/{first['id']}/secrets"
    await put(api, value=f"{VALUE}-key")
    told = await put(api, f"{path}/openai")
    assert (told["scope"], told["session"]) == ("session", first["id"])
    assert sent(api.plane, first["id"]) == VALUE
    assert sent(api.plane, second["id"]) == f"{VALUE}-key"
    # The agent of the session sees what it may name, and can't change it.
    (shown,) = (await api.json("GET", path, key=first["handle"]))["items"]
    assert (shown["name"], shown["delivery"], shown["variable"]) == ("openai", "placeholder", "KEY")
    changes: list[tuple[str, dict[str, Any]]] = [("PUT", {"json": BODY}), ("DELETE", {})]
    for method, more in changes:
        where = (method, f"{path}/openai")
        await api.problem(403, "permission_denied", *where, key=first["handle"], **more)
        await api.problem(404, "not_found", *where, key=OTHER_KEY, **more)
    (event,) = (await api.json("GET", f"/api/sessions/{first['id']}/audit?operation=secret.set"))[
        "items"
    ]
    assert event["actor"] == "operator"
    assert (event["args"]["name"], event["args"]["hosts"]) == ("openai", [HOST])
    await api.json("DELETE", f"/api/sessions/{first['id']}", key=OPERATOR_KEY)
    assert await stored(api.plane) == [("operator", "")]
    assert [holder.session_key for holder in api.plane.secrets.holders] == [""]
    await api.problem(410, "session_terminated", "PUT", f"{path}/openai", json=BODY)


async def test_a_session_lists_its_secret_variables_too(api: Api) -> None:
    told = await out(api, secrets={"SECRET_TOKEN": VALUE})
    path = f"/api/sessions/{told['id']}/secrets"
    (shown,) = (await api.json("GET", path))["items"]
    assert (shown["name"], shown["delivery"], shown["hosts"]) == ("SECRET_TOKEN", "variable", [])
    # Its value is not stored as something else either.
    problem = await api.problem(
        400, "validation_error", "PUT", f"{path}/x", json={**BODY, "hosts": [f"{VALUE}.example"]}
    )
    assert problem["field"] == "hosts"


async def stored(plane: ControlPlane) -> list[tuple[str, str]]:
    """The keys and sessions of the stored secrets."""

    def read(connection: sqlite3.Connection) -> list[tuple[str, str]]:
        return connection.execute("SELECT key, session_key FROM secrets").fetchall()

    return await plane.database.read(read)


async def test_secrets_survive_a_restart_encrypted(
    settings: Settings, engine: FakeEngine, agents: Agents
) -> None:
    plane = await ControlPlane.open(settings, engine)
    async with served(plane, engine, agents) as api:
        told, ended = await out(api), await out(api)
        await put(api)
        await put(api, f"/api/sessions/{told['id']}/secrets/own", value=f"{VALUE}-own")
        await put(api, f"/api/sessions/{ended['id']}/secrets/own")
    await plane.close()
    for path in settings.state_dir.rglob("*"):
        if path.is_file():
            assert VALUE.encode() not in path.read_bytes(), path
    assert (settings.state_dir / KEY_FILE).stat().st_mode & 0o777 == 0o600
    assert KEY_FILE in PRIVATE
    plane = await reopened(settings, engine, agents)
    assert sent(plane, told["id"]) == VALUE
    assert sent(plane, told["id"], "own") == f"{VALUE}-own"
    await plane.close()
    # Who can write the database can't send a value elsewhere.
    with sqlite3.connect(settings.state_dir / "paddock.db") as database:
        database.execute("UPDATE secrets SET use = replace(use, 'api', 'evil') WHERE name = 'own'")
    database.close()
    plane = await reopened(settings, engine, agents)
    async with served(plane, engine, agents) as api:
        assert sent(plane, told["id"], "own", "evil.example") == "paddock:own"
        items = (await api.json("GET", f"/api/sessions/{told['id']}/secrets"))["items"]
        assert {each["name"]: each["lost"] for each in items} == {"own": True, "openai": False}
        for session in (told, ended):
            await api.json("DELETE", f"/api/sessions/{session['id']}")
    assert await stored(plane) == [("operator", "")]
    await plane.close()


async def test_a_request_in_clear_goes_out_in_tls_with_the_value(
    settings: Settings, engine: FakeEngine, agents: Agents, tmp_path: Path
) -> None:
    names = Names()
    names.answers = {HOST: [["127.0.0.1"]]}
    async with web(hello(), certificate(tmp_path, HOST)) as server:
        rules = f'\n[[egress.allow]]\nhost = "{HOST}"\nports = [{server.port}]\nupgrade = true\n'
        (tmp_path / "out.toml").write_text(level_with(rules))
        changed = settings.model_copy(update={"ca_file": tmp_path / "cert.pem"})
        plane = await ControlPlane.open(changed, engine, NamesResolver(names))
        async with served(plane, engine, agents) as api:
            told = await out(api)
            await put(api)
            at = f"{HOST}:{server.port}"
            request = f"GET http://{at}/v1?q HTTP/1.1\r\nHost: {at}\r\n"
            field = "Authorization: Bearer paddock:openai\r\n"
            assert b"hello" in await ask(plane, told["id"], f"{request}{field}\r\n")
            assert f"Authorization: Bearer {VALUE}\r\n".encode() in server.received[-1]
            await api.json("DELETE", PATH, key=OPERATOR_KEY)
            assert b"hello" in await ask(plane, told["id"], f"{request}{field}\r\n")
            assert field.encode() in server.received[-1]
            path = f"/api/sessions/{told['id']}/audit?operation=egress.request"
            first, second = (await api.json("GET", path))["items"]
            assert first["args"]["upgraded"] is second["args"]["upgraded"] is True
            assert (first["args"]["secrets"], first["args"]["path"]) == (["openai"], "/v1")
            assert "secrets" not in second["args"]
            await api.json("DELETE", f"/api/sessions/{told['id']}")
        await plane.close()


async def ask(plane: ControlPlane, session_id: str, request: str) -> bytes:
    """What a program in the sandbox is answered."""
    session = plane.sessions.registry.get(session_id)
    assert session is not None
    assert session.sandbox is not None
    path = session.sandbox.directory.egress / "egress.sock"
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(request.encode())
        return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("path", "change", "field"),
    [
        (PATH, {"value": "short"}, "value"),
        (PATH, {"value": VALUE + "\r\nX-Evil: 1"}, "value"),
        (PATH, {"value": "x" * (OUTSIDE_SECRET[1] + 1)}, "value"),
        (PATH, {"value": None}, "value"),
        (PATH, {"hosts": []}, "hosts"),
        (PATH, {"hosts": [HOST, "*.example"]}, "hosts.1"),
        (PATH, {"hosts": ["127.1"]}, "hosts.0"),
        (PATH, {"hosts": ["x.example"] * 65}, "hosts"),
        (PATH, {"levels": ["No Level"]}, "levels.0"),
        (PATH, {"levels": ["high", "hgih"]}, "levels.1"),
        (PATH, {"variable": "A B"}, "variable"),
        (PATH, {"headers": ["Host"]}, "headers.0"),
        (PATH, {"headers": ["Proxy-X"]}, "headers.0"),
        (PATH, {"file": "/etc/passwd"}, "file"),
        ("/api/secrets/Open%20AI", {}, "name"),
        (f"{PATH}?scope=all", {}, "scope"),
    ],
)
async def test_a_bad_secret_is_refused_with_its_field(
    api: Api, path: str, change: dict[str, Any], field: str
) -> None:
    problem = await api.problem(
        400, "validation_error", "PUT", path, key=OPERATOR_KEY, json={**BODY, **change}
    )
    assert problem["field"] == field
    assert VALUE not in json.dumps(problem)
    assert await stored(api.plane) == []


@pytest.mark.slow
async def test_names_variables_and_numbers_are_bounded(api: Api) -> None:
    await put(api)
    problem = await api.problem(
        409, "conflict", "PUT", "/api/secrets/other", key=OPERATOR_KEY, json=BODY
    )
    assert "KEY is the variable of openai" in problem["detail"]
    await api.problem(409, "conflict", "PUT", "/api/secrets/configured", json=BODY)
    told = await out(api)
    for number in range(MOST_SECRETS - 1):
        of = f"/api/sessions/{told['id']}" if number % 2 else "/api"
        await put(api, f"{of}/secrets/n{number}", variable=None)
    body = {**BODY, "variable": None}
    problem = await api.problem(
        409, "conflict", "PUT", "/api/secrets/more", key=OPERATOR_KEY, json=body
    )
    assert problem["reason"] == "too_many_secrets"
    await put(api, value=f"{VALUE}-2")  # replacing one takes no room
    await put(api, "/api/secrets/more", OTHER_KEY)


async def test_a_change_is_on_record_and_paid_by_its_key(api: Api) -> None:
    await put(api)
    await api.json("DELETE", PATH, key=OPERATOR_KEY)
    found = (await api.json("GET", "/api/audit?operation=secret.set"))["items"]
    found += (await api.json("GET", "/api/audit?operation=secret.remove"))["items"]
    assert [(each["actor"], each["args"]["name"]) for each in found] == [("operator", "openai")] * 2
    assert found[0]["args"] == {
        **{"name": "openai", "scope": "key", "key": "operator", "hosts": [HOST]},
        **{"headers": ["authorization", "x-api-key"], "levels": None, "variable": "KEY"},
    }
    ((paid,),) = await api.plane.database.read(
        lambda connection: connection.execute(
            "SELECT audit_bytes FROM key_usage WHERE owner = 'operator'"
        ).fetchall()
    )
    assert paid > 1000


async def test_removal_holds_without_a_record(api: Api) -> None:
    told = await out(api)
    await put(api)
    await api.plane.ledger.close()
    await api.problem(503, "audit_unavailable", "DELETE", PATH, key=OPERATOR_KEY)
    assert sent(api.plane, told["id"]) == "paddock:openai"
    await api.problem(503, "audit_unavailable", "PUT", PATH, key=OPERATOR_KEY, json=BODY)
    assert sent(api.plane, told["id"]) == "paddock:openai"


async def test_values_of_files_are_read_again(api: Api, tmp_path: Path) -> None:
    told = await out(api, OTHER_KEY, permission_level="also")
    assert sent(api.plane, told["id"], "configured") == f"{VALUE}-configured"
    (tmp_path / "value").write_text(f"{VALUE}-rotated\n")
    await api.plane.reload.look()
    assert sent(api.plane, told["id"], "configured") == f"{VALUE}-rotated"
    # A broken one changes nothing, and is reported without the value.
    (tmp_path / "value").write_text(f"{VALUE} broken")
    await api.plane.reload.look()
    assert sent(api.plane, told["id"], "configured") == f"{VALUE}-rotated"
    (problem,) = api.plane.reload.problems.values()
    assert "must have 8 to 8192" in problem
    found = json.dumps(await api.json("GET", "/api/audit?operation=policy.reloaded"))
    assert found.count(str(tmp_path / "value")) >= 2
    assert VALUE not in found


@pytest.fixture
async def paddock(api: Api) -> AsyncIterator[Paddock]:
    async with Paddock(str(api.server.make_url("/")), OPERATOR_KEY) as client:
        yield client


async def test_the_client_sets_lists_and_removes(api: Api, paddock: Paddock) -> None:
    done = await paddock.secrets.set("openai", VALUE, hosts=[HOST], levels=["out"])
    assert (done.hosts, done.levels) == ([HOST], ["out"])
    with pytest.raises(PermissionDeniedError):
        await paddock.secrets.set("openai", VALUE, hosts=[HOST], key="other")
    session = await paddock.sessions.create(permission_level="out")
    await session.secrets.set("own", VALUE, hosts=[HOST], variable="OWN")
    assert [each.name for each in await session.secrets.list()] == ["openai", "own"]
    with pytest.raises(ConflictError, match="OWN is the variable of own"):
        await session.secrets.set("other", VALUE, hosts=[HOST], variable="OWN")
    await session.secrets.remove("own")
    assert (await paddock.secrets.remove("openai")).name == "openai"
    with pytest.raises(NotFoundError):
        await paddock.secrets.remove("openai")
    assert await paddock.secrets.list() == ()


async def test_the_command_line_takes_no_value_as_an_argument(
    api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PADDOCK_URL", str(api.server.make_url("/")))
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    told = await out(api)
    (tmp_path / "openai.key").write_text(f"{VALUE}\n")
    where = ("--host", HOST, "--file", str(tmp_path / "openai.key"))
    done = await run_beside("secrets", "set", "openai", *where, "--of", "operator", "--json")
    assert json.loads(done.out)[0]["keys"] == ["operator"]
    assert sent(api.plane, told["id"]) == VALUE
    await run_beside("secrets", "set", "own", *where, "--session", told["id"], "--variable", "OWN")
    assert sent(api.plane, told["id"], "own") == VALUE
    listed = await run_beside("secrets", "list", "--session", told["id"])
    assert "OWN" in listed.out
    assert VALUE not in listed.out + done.out
    assert (await run_beside("secrets", "remove", "openai", "--of", "operator")).status == 0
    assert "openai" not in (await run_beside("secrets", "list")).out
    wrong = await run_beside("secrets", "set", "a", VALUE, "--host", HOST)
    assert wrong.status == 2
    both = await run_beside("secrets", "list", "--session", told["id"], "--json")
    assert json.loads(both.out)[0]["name"] == "own"
