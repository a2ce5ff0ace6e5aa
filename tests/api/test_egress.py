"""What a session may reach, changed over HTTP while it runs."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.limits import KeyLimits
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.record.audit import query
from orchestrator.record.secrets.request_head import parse_head
from orchestrator.rules.access.keys import KeyRing, Principal, Role, digest
from orchestrator.rules.egress.session_rules import OwnRules
from orchestrator.sandbox.egress import connections
from orchestrator.sandbox.egress.evidence import ConnectionEvidence
from orchestrator.sandbox.egress.key_bytes import KeyBytes
from orchestrator.settings.settings import Settings
from orchestrator.state.session import Session
from paddock import ConflictError, Paddock, ValidationError
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, OTHER_KEY, Api
from tests.api.test_stopping import full
from tests.support.egress import Endless, Names, NamesResolver, Web, hello, level_with, web
from tests.support.fake_agent import Agents
from tests.support.limits import WAIT_SECONDS
from tests.support.restart import reopened
from tests.support.until import until

HOSTS = ("a.example", "b.example", "c.example")
RULES = "".join(f'\n[[egress.allow]]\nhost = "{host}"\nports = [80, PORT]\n' for host in HOSTS[:2])


@pytest.fixture
async def server() -> AsyncIterator[Web]:
    async with web(hello()) as served:
        yield served


@pytest.fixture
async def endless() -> AsyncIterator[Endless]:
    async with web(Endless()) as served:
        yield served


@pytest.fixture
def settings(settings: Settings, tmp_path: Path, server: Web, endless: Endless) -> Settings:
    ports = f"{server.port}, {endless.port}"
    (tmp_path / "out.toml").write_text(level_with(RULES.replace("PORT", ports)))
    (tmp_path / "tight.toml").write_text(level_with(RULES.replace("PORT", ports), rank=205))
    return settings.model_copy(update={"levels_dir": tmp_path})


@pytest.fixture
async def plane(settings: Settings, engine: FakeEngine) -> AsyncIterator[ControlPlane]:
    names = Names()
    names.answers = {host: [["127.0.0.1"]] for host in HOSTS}
    plane = await ControlPlane.open(settings, engine, NamesResolver(names))
    yield plane
    await plane.close()


class Client:
    """An operator's session, and requests of its sandbox."""

    def __init__(self, api: Api, told: dict[str, Any]) -> None:
        self.api = api
        self.id, self.handle = told["id"], told["handle"]
        self.path = f"/api/sessions/{self.id}/egress"

    @property
    def session(self) -> Session:
        found = self.api.plane.sessions.registry.get(self.id)
        assert found is not None
        return found

    @property
    def socket(self) -> Path:
        """The sandbox's way to the proxy."""
        assert self.session.sandbox is not None
        return self.session.sandbox.directory.egress / "egress.sock"

    async def show(self, key: str = OPERATOR_KEY) -> dict[str, Any]:
        return await self.api.json("GET", self.path, key=key)

    async def put(self, key: str = OPERATOR_KEY, **body: Any) -> dict[str, Any]:
        return await self.api.json("PUT", self.path, key=key, json=body)

    async def refused(self, status: int, code: str, key: str, **body: Any) -> dict[str, Any]:
        before = await self.show()
        problem = await self.api.problem(status, code, "PUT", self.path, key=key, json=body)
        assert await self.show() == before
        return problem

    async def get(self, host: str, server: Web) -> bytes:
        async with self.asking(host, server) as reader:
            return await reader.read()

    @asynccontextmanager
    async def asking(self, host: str, server: Web) -> AsyncIterator[asyncio.StreamReader]:
        reader, writer = await asyncio.open_unix_connection(self.socket)
        at = f"{host}:{server.port}"
        writer.write(f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n".encode())
        try:
            yield reader
        finally:
            writer.close()

    async def open_connections(self) -> int:
        """The number of those whose end would be told after a kill."""
        ((number,),) = await self.api.plane.database.read(
            lambda connection: connection.execute(
                "SELECT count(*) FROM egress_connections"
            ).fetchall()
        )
        return int(number)

    async def events(self, operation: str) -> list[dict[str, Any]]:
        path = f"/api/sessions/{self.id}/audit?operation={operation}"
        found: list[dict[str, Any]] = (await self.api.json("GET", path))["items"]
        return found


async def client_of(api: Api, **body: Any) -> Client:
    return Client(api, await api.session(key=OPERATOR_KEY, permission_level="out", **body))


@pytest.fixture
async def client(api: Api) -> Client:
    return await client_of(api)


async def test_a_session_shows_what_it_may_reach(client: Client) -> None:
    shown = await client.show()
    assert shown["network"] == "egress"
    assert [rule["host"] for rule in shown["level"]["allow"]] == ["a.example", "b.example"]
    assert shown["only"] == {"allow": None, "deny": []}
    assert shown["also"] == {"allow": [], "deny": []}
    assert shown["revision"] == 0
    assert set(shown["used"].values()) == {0}
    assert await client.show(client.handle) == shown
    await client.api.problem(404, "not_found", "GET", client.path, key=OTHER_KEY)


async def test_a_new_session_can_be_narrowed(api: Api, server: Web) -> None:
    rule = {"host": "A.example.", "ports": [server.port]}
    client = await client_of(api, egress={"allow": [rule]})
    (shown,) = (await client.show())["only"]["allow"]
    assert (shown["host"], shown["ports"]) == ("a.example", [server.port])
    assert b"hello" in await client.get("a.example", server)
    denied = (await client.get("b.example", server)).decode()
    assert denied.startswith("HTTP/1.1 403 ")
    assert "Rule: only: not-listed" in denied
    assert f"`paddock egress allow {client.id} b.example:{server.port}`" in denied
    (created,) = await client.events("session.create")
    assert created["args"]["egress_only"] == [f"allow a.example:{server.port}"]


@pytest.mark.parametrize(
    ("level", "egress", "field"),
    [
        ("low", {"allow": []}, "egress"),
        ("out", {"allow": [{"host": "a b"}]}, "egress.allow.0.host"),
        ("out", {"deny": [{"cidr": "10.0.0.1/8"}]}, "egress.deny.0.cidr"),
        ("out", {"allow": [{"host": "a.example", "cidr": "10.0.0.0/8"}]}, "egress.allow.0"),
        ("out", {"allow": [{"name": "a.example"}]}, "egress.allow.0.name"),
        ("out", {"deny": [{"host": "a.example"}] * 101}, "egress.deny"),
    ],
)
async def test_a_bad_narrowing_creates_nothing(
    api: Api, level: str, egress: dict[str, Any], field: str
) -> None:
    body = {"permission_level": level, "egress": egress}
    problem = await api.problem(400, "validation_error", "POST", "/api/sessions", json=body)
    assert problem["field"] == field
    assert len(api.plane.sessions.registry) == 0


async def test_the_owner_narrows_and_the_next_request_is_denied(
    client: Client, server: Web
) -> None:
    assert b"hello" in await client.get("b.example", server)
    shown = await client.put(only={"deny": [{"host": "b.example"}]})
    assert shown["revision"] == 1
    assert b"Rule: only: deny b.example\n" in await client.get("b.example", server)
    assert b"hello" in await client.get("a.example", server)
    (event,) = await client.events("session.settings")
    assert (event["actor"], event["decision"]) == ("operator", "allow")
    assert event["args"] == {
        "egress_revision": 1,
        "egress_only": ["deny b.example"],
        "egress_also": [],
    }
    # It lifts what it has set itself.
    assert (await client.put(only=None))["only"] == {"allow": None, "deny": []}
    assert b"hello" in await client.get("b.example", server)


async def test_an_admin_widens_and_the_next_request_passes(client: Client, server: Web) -> None:
    assert b"Rule: not-listed\n" in await client.get("c.example", server)
    also = {"allow": [{"host": "c.example", "ports": [server.port]}]}
    await client.put(ADMIN_KEY, also=also)
    assert b"hello" in await client.get("c.example", server)
    *_, allowed = await client.events("egress.request")
    assert allowed["rule"] == f"also: allow c.example:{server.port}"
    # The owner's rules hold all the same, and narrowing leaves the admin's as they are.
    shown = await client.put(only={"deny": [{"host": "c.example"}]})
    assert shown["also"]["allow"] != []
    assert b"403" in await client.get("c.example", server)


async def test_an_explanation_knows_the_session_s_rules(client: Client) -> None:
    async def stops(host: str) -> list[str]:
        body = {"session": client.id, "command": f"curl http://{host}/"}
        explained = await client.api.json("POST", "/api/policies/explain", json=body)
        return [stop["message"] for stop in explained["layers"]]

    assert (await stops("c.example"))[0].startswith("not-listed: ")
    assert await stops("b.example") == []
    also = {"allow": [{"host": "c.example"}]}
    await client.put(ADMIN_KEY, also=also, only={"deny": [{"host": "b.example"}]})
    assert await stops("c.example") == []
    assert (await stops("b.example"))[0].startswith("only: deny b.example: ")


async def test_only_an_admin_widens(client: Client) -> None:
    also = {"allow": [{"host": "c.example"}]}
    problem = await client.refused(403, "permission_denied", OPERATOR_KEY, also=also)
    assert (problem["rule"], problem["field"]) == ("admin-widens", "also")
    await client.refused(403, "permission_denied", OPERATOR_KEY, also=also, only=None)
    await client.refused(403, "permission_denied", client.handle, only={"allow": []})
    for event in await client.events("session.settings"):
        assert (event["decision"], event["rule"]) == ("deny", "admin-widens")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"also": {"allow": [{"host": "c.example"}, {"host": "*"}]}}, "also.allow.1.host"),
        ({"only": {"allow": [{"cidr": "127.0.0.0/8"}]}}, "only.allow.0.cidr"),
        ({"only": {"deny": [{"host": "a.example", "ports": [0]}]}}, "only.deny.0.ports.0"),
        ({"only": {"allow": []}, "also": {"deny": [{}]}}, "also.deny.0"),
        (
            {"only": {"deny": [{"host": "a.example", "methods": ["GET"], "inspect": True}]}},
            "only.deny.0.inspect",
        ),
        (
            {"also": {"allow": [{"host": "a.example"}, {"host": "b.example", "inspect": True}]}},
            "also.allow.1.inspect",
        ),
        ({"only": {}, "revision": -1}, "revision"),
        ({}, None),
        ({"revision": 0}, None),
    ],
)
async def test_a_bad_change_changes_nothing(
    client: Client, body: dict[str, Any], field: str | None
) -> None:
    problem = await client.refused(400, "validation_error", ADMIN_KEY, **body)
    assert problem.get("field") == field


async def test_a_rule_that_can_not_hold_is_named_by_its_place(api: Api, client: Client) -> None:
    """Where rules are added, and where a session begins with them."""
    rule = {"host": "a.example", "methods": ["GET"], "inspect": True}
    before = await client.show()
    url = f"/api/sessions/{client.session.id}/egress/rules"
    body = {"allow": [{"host": "b.example"}], "deny": [rule]}
    problem = await api.problem(400, "validation_error", "POST", url, json=body)
    assert problem["field"] == "deny.0.inspect"
    assert problem["detail"].startswith("deny.0.inspect needs a level with a rule that inspects")
    assert await client.show() == before
    body = {"permission_level": client.session.level.name, "egress": {"allow": [rule]}}
    problem = await api.problem(400, "validation_error", "POST", "/api/sessions", json=body)
    assert problem["field"] == "egress.allow.0.inspect"


async def test_two_writers_lose_nothing(client: Client) -> None:
    await client.put(only={"deny": [{"host": "a.example"}]}, revision=0)
    await client.refused(409, "conflict", OPERATOR_KEY, only={"deny": []}, revision=0)
    assert (await client.put(only={"deny": []}, revision=1))["revision"] == 2
    # Without a change there is no new revision, and nothing to record.
    assert (await client.put(only={"deny": []}))["revision"] == 2
    assert len(await client.events("session.settings")) == 2


async def test_a_level_without_a_way_out_has_no_rules_to_change(api: Api) -> None:
    client = Client(api, await api.session(key=OPERATOR_KEY, permission_level="low"))
    assert (await client.show())["network"] == "none"
    await client.refused(409, "conflict", ADMIN_KEY, only={"allow": []})


async def test_a_narrowing_cuts_what_it_does_not_allow(
    client: Client, endless: Endless, server: Web
) -> None:
    async with client.asking("a.example", endless) as cut, client.asking("b.example", endless):
        await cut.readexactly(100_000)
        await until(lambda: endless.open == 2)
        used = (await client.show())["used"]
        assert (used["allowed"], used["connections"]) == (2, 2)
        assert await client.open_connections() == 2
        assert used["received"] >= 100_000
        await client.put(only={"deny": [{"host": "a.example"}]})
        await until(lambda: endless.open == 1)
        await until_recorded(client, "egress.close", 1)
        (closed,) = await client.events("egress.close")
        assert (closed["args"]["host"], closed["error"]) == ("a.example", "cut")
        assert await client.open_connections() == 1
        # Without a change of what is allowed, nothing is cut.
        await client.put(only={"deny": [{"host": "a.example"}, {"host": "c.example"}]})
        assert (await client.show())["used"]["connections"] == 1


async def test_a_narrowing_holds_before_it_is_on_record(
    client: Client, endless: Endless, server: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.record.audit.stop_records.PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr("orchestrator.record.audit.stop_records._RETRY_SECONDS", 0.01)
    plane, deny = client.api.plane, {"deny": [{"host": "a.example"}]}
    async with client.asking("a.example", endless):
        await until(lambda: endless.open == 1)
        with full(plane):
            body = {"only": deny}
            await client.api.problem(
                503, "audit_unavailable", "PUT", client.path, key=OPERATOR_KEY, json=body
            )
            await until(lambda: endless.open == 0)
            # What widens is refused, and changes nothing.
            more = {"also": {"allow": [{"host": "c.example"}]}}
            await client.refused(503, "audit_unavailable", ADMIN_KEY, **more)
            await client.refused(503, "audit_unavailable", ADMIN_KEY, only=None)
    assert (await client.show())["only"]["deny"] != []
    await until_recorded(client, "session.settings", 1)
    (event,) = await client.events("session.settings")
    assert event["args"]["egress_only"] == ["deny a.example"]


async def test_another_level_keeps_the_narrowing_and_drops_the_widening(
    client: Client, server: Web
) -> None:
    also = {"allow": [{"host": "c.example", "ports": [server.port]}]}
    await client.put(ADMIN_KEY, also=also, only={"deny": [{"host": "b.example"}]})
    settings = {"settings": {"permission_level": "tight"}}
    path = f"/api/sessions/{client.id}/settings"
    await client.api.json("PUT", path, key=OPERATOR_KEY, json=settings)
    shown = await client.show()
    assert shown["also"] == {"allow": [], "deny": []}
    assert [rule["host"] for rule in shown["only"]["deny"]] == ["b.example"]
    assert shown["revision"] == 2
    assert b"Rule: not-listed" in await client.get("c.example", server)
    assert b"Rule: only: deny b.example" in await client.get("b.example", server)
    ((stored,),) = await client.api.plane.database.read(
        lambda connection: connection.execute("SELECT egress FROM sessions").fetchall()
    )
    assert OwnRules.restored(json.loads(stored)) == client.session.own_rules
    *_, event = await client.events("session.settings")
    assert event["args"]["egress_dropped"] == [f"allow c.example:{server.port}"]


async def test_a_restart_keeps_rules_and_use_and_tells_of_open_connections(
    settings: Settings,
    engine: FakeEngine,
    agents: Agents,
    plane: ControlPlane,
    api: Api,
    server: Web,
) -> None:
    client = await client_of(api, egress={"deny": [{"host": "b.example"}]})
    await client.put(ADMIN_KEY, also={"allow": [{"host": "c.example"}]})
    await client.get("a.example", server)
    await until_recorded(client, "egress.close", 1)
    shown = await client.show()
    await plane.database.write(connections.opened(client.session, "0123456789abcdef"))
    await plane.close()
    again = await reopened(settings, engine, agents)
    try:
        session = again.sessions.registry.get(client.id)
        assert session is not None
        assert session.own_rules.revision == shown["revision"] == 1
        assert session.own_rules.recorded() == {
            "only": ["deny b.example"],
            "also": ["allow c.example:80,443"],
        }
        assert session.egress_usage.stored() == {
            name: shown["used"][name] for name in ("allowed", "denied", "sent", "received")
        }
        found = await query.events(again.database, session.key, operation="egress.close", limit=9)
        *_, lost = found
        assert lost["args"] == {"connection_id": "0123456789abcdef"}
        assert "the control plane ended" in lost["error"]
        assert (
            await again.database.read(
                lambda connection: connection.execute("SELECT * FROM egress_connections").fetchall()
            )
            == []
        )
    finally:
        await again.close()


async def until_recorded(client: Client, operation: str, number: int) -> None:
    """Returns when so many events of that kind are on record."""
    key, seq = client.session.key, 0
    async with asyncio.timeout(WAIT_SECONDS):
        while len(await client.events(operation)) < number:
            seq = await client.api.plane.ledger.wait(key, seq)


async def test_the_client_shows_and_changes_the_rules(api: Api) -> None:
    async with Paddock(str(api.server.make_url("/")), ADMIN_KEY) as paddock:
        narrow = {"deny": [{"host": "a.example"}]}
        session = await paddock.sessions.create(permission_level="out", egress=narrow)
        first = await session.egress.get()
        assert [rule.host for rule in first.only.deny] == ["a.example"]
        also = {"allow": [{"host": "c.example"}]}
        second = await session.egress.set(also=also, revision=first.revision)
        assert (second.only, second.revision) == (first.only, 1)
        with pytest.raises(ConflictError, match="revision 1"):
            await session.egress.set(only=None, revision=0)
        third = await session.egress.set(only=None)
        assert (third.only.deny, third.also) == ([], second.also)
        with pytest.raises(ValidationError, match=r"only\.allow\.0\.host"):
            await session.egress.set(only={"allow": [{"host": "a b"}]})
        assert (await session.egress.drafts()).items == []


async def drafts_of(client: Client, key: str = OPERATOR_KEY) -> list[dict[str, Any]]:
    found = await client.api.json("GET", f"{client.path}/drafts", key=key)
    items: list[dict[str, Any]] = found["items"]
    return items


async def add(client: Client, key: str = ADMIN_KEY, **body: Any) -> dict[str, Any]:
    return await client.api.json("POST", f"{client.path}/rules", key=key, json=body)


async def not_added(client: Client, status: int, key: str = ADMIN_KEY, **body: Any) -> str:
    before = await client.show()
    path, codes = f"{client.path}/rules", {400: "validation_error", 403: "permission_denied"}
    code = codes.get(status, "conflict")
    problem = await client.api.problem(status, code, "POST", path, key=key, json=body)
    assert await client.show() == before
    return str(problem["detail"])


async def test_a_denied_host_is_a_draft_that_an_admin_applies(client: Client, server: Web) -> None:
    for _ in range(3):
        assert b"Rule: not-listed\n" in await client.get("c.example", server)
    (draft,) = await drafts_of(client)
    proposal = {"host": "c.example", "cidr": None, "ports": [server.port]}
    assert draft["proposal"] == {
        **proposal,
        "methods": [],
        "paths": [],
        "inspect": False,
        "upgrade": False,
        "programs": [],
    }
    assert (draft["number"], draft["count"], draft["rule"]) == (1, 3, "not-listed")
    assert (draft["host"], draft["method"], draft["path"]) == ("c.example", "GET", "/")
    assert draft["first_seen"] < draft["last_seen"]
    assert (await client.show())["used"]["denied"] == 3

    assert "only an admin" in await not_added(client, 403, OPERATOR_KEY, drafts=[1])
    await not_added(client, 403, client.handle, drafts=[1])
    assert "there is no draft 2" in await not_added(client, 409, drafts=[1, 2])
    shown = await add(client, drafts=[1])
    assert [rule["host"] for rule in shown["also"]["allow"]] == ["c.example"]
    assert b"hello" in await client.get("c.example", server)
    assert await drafts_of(client) == []


async def test_an_owner_applies_a_draft_of_its_own_narrowing(api: Api, server: Web) -> None:
    client = await client_of(api, egress={"allow": []})
    assert b"Rule: only: not-listed\n" in await client.get("a.example", server)
    shown = await add(client, OPERATOR_KEY, drafts=[1])
    assert [rule["host"] for rule in shown["only"]["allow"]] == ["a.example"]
    assert shown["also"]["allow"] == []
    assert b"hello" in await client.get("a.example", server)


async def test_what_no_rule_can_allow_is_a_draft_without_a_rule(
    client: Client, server: Web
) -> None:
    await client.get("169.254.169.254", server)
    (draft,) = await drafts_of(client)
    assert draft["proposal"] is None
    assert "no rule can be proposed" in await not_added(client, 409, drafts=[1])


@pytest.mark.slow
async def test_drafts_are_bounded(client: Client, server: Web) -> None:
    path = f"{client.path}/drafts"
    for number in range(103):
        await client.get(f"{number}.{'x' * 60}.example", server)
    found = await client.api.json("GET", path)
    assert (len(found["items"]), found["others"]) == (100, 3)


async def test_rules_are_added_where_they_are_needed(client: Client, server: Web) -> None:
    rule = {"host": "c.example", "ports": [server.port]}
    await add(client, allow=[rule])
    assert (await add(client, allow=[rule]))["revision"] == 1
    # An owner's denial is the owner's; an admin's is not.
    shown = await add(client, OPERATOR_KEY, deny=[{"host": "c.example"}])
    assert [each["host"] for each in shown["only"]["deny"]] == ["c.example"]
    assert b"403" in await client.get("c.example", server)
    await add(client, OPERATOR_KEY, allow=[rule])
    assert b"hello" in await client.get("c.example", server)
    shown = await add(client, deny=[{"host": "a.example"}])
    assert [each["host"] for each in shown["also"]["deny"]] == ["a.example"]
    here = {"host": "a.example", "ports": [server.port]}
    assert "also: deny a.example" in await not_added(client, 409, OPERATOR_KEY, allow=[here])
    await add(client, allow=[here])
    assert b"hello" in await client.get("a.example", server)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"allow": [{"host": "c.example"}, {"host": "a b"}]}, "allow.1.host"),
        ({"deny": [{"cidr": "1.2.3.4/8"}]}, "deny.0.cidr"),
        ({"drafts": [0]}, "drafts.0"),
        ({}, "a rule or a draft must be given"),
    ],
)
async def test_a_bad_rule_is_not_added(client: Client, body: dict[str, Any], said: str) -> None:
    assert said in await not_added(client, 400, **body)


async def test_a_session_has_so_many_rules(client: Client) -> None:
    for start in (0, 50):
        await add(client, deny=[{"host": f"{start + each}.example"} for each in range(50)])
    assert "at most 100 rules" in await not_added(client, 409, deny=[{"host": "more.example"}])


async def test_secrets_are_neither_shown_nor_stored(api: Api, server: Web) -> None:
    client = await client_of(api, secrets={"SECRET_TOKEN": "tok-2b1f9c07d4e8"})
    await client.get("tok-2b1f9c07d4e8.example", server)
    (draft,) = await drafts_of(client)
    assert "2b1f9c07d4e8" not in str(draft)
    assert draft["proposal"] is None
    rule = {"host": "tok-2b1f9c07d4e8.example"}
    assert "secret" in await not_added(client, 400, allow=[rule])


@pytest.mark.slow
async def test_ten_thousand_denied_requests_do_not_flood_the_record(
    client: Client, server: Web
) -> None:
    """What is recorded of them is counted, and each is in the numbers."""
    # The door lets only so many through per second, so the record is asked directly.
    evidence = ConnectionEvidence(
        client.api.plane.egress._recorder, client.session, client.api.plane.key_bytes
    )
    head = parse_head(b"GET http://c.example/ HTTP/1.1\r\nHost: c.example\r\n\r\n")
    decision = client.session.egress_rules.decide(head.outgoing)
    for _ in range(10_000):
        await evidence.denied(head, decision)
    assert (await client.show())["used"]["denied"] == 10_000
    (draft,) = await drafts_of(client)
    assert draft["count"] == 10_000
    await client.api.json("DELETE", f"/api/sessions/{client.id}")
    events = await client.events("egress.request")
    told = sum(event["args"].get("repeats", 1) for event in events)
    (ended,) = await client.events("session.terminated")
    assert told + ended["args"].get("untold_refusals", 0) == 10_000
    assert len(events) < 200


@pytest.mark.slow
async def test_the_end_of_a_key_s_bytes_cuts_its_connections_and_denies_others(
    api: Api, server: Web, endless: Endless, engine: FakeEngine, agents: Agents
) -> None:
    plane = api.plane
    first, second = await client_of(api), await client_of(api)
    async with first.asking("a.example", endless) as reader:
        # This one moves nothing when the bytes end.
        await endless.stalled.wait()
        used = (await second.show())["key"]["bytes_today"]
        assert used > 0
        limits = KeyLimits(max_egress_bytes_per_day=used + 50)
        principals = {digest(OPERATOR_KEY): Principal("operator", Role.OPERATOR, limits=limits)}
        principals |= {digest(ADMIN_KEY): Principal("admin", Role.ADMIN)}
        plane.keys.replace(KeyRing(principals))
        await second.get("a.example", server)
        await reader.read()
        await until(lambda: endless.open == 0)
    denied = (await second.get("a.example", server)).decode()
    assert "Rule: key-egress-bytes\n" in denied
    assert f"max_egress_bytes_per_day of the key operator is {used + 50}" in denied
    shown = (await first.show())["key"]
    assert shown == {"bytes_today": used + 50, "max_bytes_per_day": used + 50}
    for client in (first, second):
        (closed,) = await client.events("egress.close")
        assert closed["error"] == "max_egress_bytes_per_day of the key is used up"
    *_, event = await second.events("egress.request")
    assert (event["decision"], event["rule"]) == ("deny", "key-egress-bytes")
    admin = Client(api, await api.session(permission_level="out"))
    assert b"hello" in await admin.get("a.example", server)
    # The count survives a restart.
    ((stored,),) = await plane.database.read(
        lambda connection: connection.execute(
            "SELECT egress_bytes FROM key_usage WHERE owner = 'operator'"
        ).fetchall()
    )
    assert stored == used + 50
    again = KeyBytes(plane.keys, KeyLimits())
    await again.load(plane.database)
    assert again.used("operator") == used + 50
