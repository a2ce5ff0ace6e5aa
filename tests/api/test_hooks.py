"""Hooks over HTTP: who may add which, what they are told, and what becomes of it."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.database_file import StoreError
from orchestrator.ground.tasks import TaskName
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.operate import open as operate
from orchestrator.operate.hooks import hook_rules
from orchestrator.operate.hooks.hook_deliveries import MOST_TRIES
from orchestrator.record.secrets.sealer import KEY_FILE
from orchestrator.settings.operator_hooks import OperatorHook
from orchestrator.settings.operator_models import OperatorModel
from orchestrator.settings.settings import Settings
from paddock import NotFoundError, Paddock
from paddock.contract.words import HOOK_EVENTS
from paddock.webhooks import verify
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, OTHER_KEY, Api, served
from tests.api.test_approvals import ask
from tests.api.test_packs import missed, opened
from tests.api.test_turns import EDIT
from tests.support.cli import run_beside
from tests.support.fake_agent import Agents
from tests.support.keys import entry
from tests.support.manual_clock import ManualClock
from tests.support.models import Answer, model_server
from tests.support.receiver import ERROR, HANGS, OK, Received, Receiver, receiving
from tests.support.restart import reopened
from tests.support.until import until

HOOKS = "/api/hooks"
ENDS = ["session.closed"]
CANARY = "whsec-canary-" + "4e8b" * 6
LONG = 100_000.0


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving("/hooks/paddock") as receiver:
        yield receiver


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    clock = ManualClock()
    monkeypatch.setattr(operate, "WallClock", lambda: clock)
    return clock


@pytest.fixture
def settings(settings: Settings, receiver: Receiver, clock: ManualClock) -> Settings:
    permitted = receiver.url.removesuffix("paddock")
    return settings.model_copy(update={"hook_prefixes": (permitted,)})


async def add(
    api: Api, receiver: Receiver, *events: str, key: str = OPERATOR_KEY, **more: Any
) -> dict[str, Any]:
    body = {"url": receiver.url, "events": list(events or ENDS), **more}
    return await api.json("POST", HOOKS, json=body, key=key, status=201)


async def end(api: Api, key: str = OPERATOR_KEY, **more: Any) -> str:
    """The id of a session that has been created and closed."""
    session = await api.session(key=key, **more)
    await api.json("DELETE", f"/api/sessions/{session['id']}", key=key)
    return str(session["id"])


async def got(receiver: Receiver, number: int) -> list[Received]:
    await until(lambda: len(receiver.requests) >= number)
    return receiver.requests


async def listed(api: Api, key: str = OPERATOR_KEY) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await api.json("GET", HOOKS, key=key))["items"]
    return items


async def undelivered(api: Api, hook: dict[str, Any]) -> list[dict[str, Any]]:
    path = f"{HOOKS}/{hook['id']}/deliveries?status=undelivered"
    items: list[dict[str, Any]] = (await api.json("GET", path, key=OPERATOR_KEY))["items"]
    return items


async def given_up(api: Api, receiver: Receiver, clock: ManualClock) -> dict[str, Any]:
    """A hook with one message that was given up."""
    hook = await add(api, receiver)
    receiver.answer = lambda _: ERROR
    await end(api, id="box")
    for tries in range(1, MOST_TRIES + 1):
        await got(receiver, tries)
        await until(lambda: api.plane.hooks.total().undelivered == 1 or _pauses(api))
        clock.advance(LONG)
    await until(lambda: api.plane.hooks.total().undelivered == 1)
    return hook


def _pauses(api: Api) -> bool:
    """Whether nothing is being sent."""
    return not any(each.deliveries._sending for each in api.plane.hooks._running.values())


def _failed(api: Api) -> float:
    return float(api.plane.metrics._hooks["failed"]._value.get())


async def test_a_key_is_told_of_its_sessions_signed_and_in_order(
    api: Api, receiver: Receiver
) -> None:
    hook = await add(api, receiver, "session.created", "session.closed")
    assert (hook["key"], hook["managed_by"], hook["waiting"]) == ("operator", "operator", 0)
    await end(api, id="theirs", key=OTHER_KEY)
    await end(api, id="mine", labels={"team": "a"}, permission_level="low")
    created, closed = await got(receiver, 2)
    assert (created.json["type"], closed.json["type"]) == ("session.created", "session.closed")
    assert created.json["session"]["id"] == closed.json["session"]["id"] == "mine"
    assert created.json["session"]["key"] == "operator"
    assert created.json["session"]["permission_level"] == "low"
    assert created.json["session"]["workspace_root"].endswith("/mine")
    assert created.json["data"]["labels"] == {"team": "a"}
    assert closed.json["data"]["status"] == "completed"
    for each in (created, closed):
        timestamp, signed = each.headers["paddock-timestamp"], each.headers["paddock-signature"]
        assert verify(hook["secret"], timestamp, signed, each.body)
        assert each.headers["paddock-delivery"] == each.json["id"]
        assert each.headers["paddock-event"] == each.json["type"]
    # It is on record.
    events = (await api.json("GET", "/api/sessions/mine/audit", key=OPERATOR_KEY))["items"]
    assert created.json["event"] in [{"id": e["id"], "seq": e["seq"]} for e in events]


async def test_an_admin_is_told_of_all_or_of_one_key(api: Api, receiver: Receiver) -> None:
    everybodys = await add(api, receiver, key=ADMIN_KEY)
    assert (everybodys["key"], everybodys["managed_by"]) == (None, None)
    body = {"url": receiver.url, "events": ENDS, "key": "operator"}
    operators = await api.json("POST", HOOKS, json=body, status=201)
    assert operators["key"] == "operator"
    await end(api, id="one")
    await end(api, id="two", key=OTHER_KEY)
    told = [each.json["session"]["id"] for each in await got(receiver, 3)]
    assert sorted(told) == ["one", "one", "two"]
    # Those of an admin are not the key's, even if they are about its sessions.
    assert await listed(api) == []
    path = f"{HOOKS}/{operators['id']}"
    await api.problem(404, "not_found", "DELETE", path, key=OPERATOR_KEY)


async def test_every_type_is_told_of_what_happens(api: Api, receiver: Receiver) -> None:
    await add(api, receiver, *HOOK_EVENTS, key=ADMIN_KEY)
    async with model_server() as server:
        api.plane.models.configured["small"] = OperatorModel.model_validate(server.setting())
        server.answers = [Answer("done")]
        await api.session(id="runs", policy=EDIT)
        body = {"messages": [{"content": "go"}]}
        run = await api.json("POST", "/api/sessions/runs/send", json=body)
        program: dict[str, Any] = {"operations": []}
        await api.json("POST", "/api/sessions/runs/turns", json=program)
    asks = await api.session(id="asks", key=OPERATOR_KEY)
    approval = await ask(api, asks["id"])
    await api.session(id="spends", budget={"commands": 1})
    for _ in range(2):
        await api.call("POST", "/api/sessions/spends/exec", json={"command": "ls"})
    reads = await opened(api, "notes", id="reads")
    await missed(api, reads["id"])
    found: dict[str, list[dict[str, Any]]] = {}
    for each in await got(receiver, 10):
        found.setdefault(each.json["session"]["id"], []).append(each.json)
    types = {name: [each["type"] for each in messages] for name, messages in found.items()}
    assert types == {
        "runs": ["session.created", "run.completed"],
        "asks": ["session.created", "approval.requested"],
        "spends": ["session.created", "budget.exceeded", "session.closed"],
        "reads": ["session.created", "context.miss", "session.closed"],
    }
    completed = found["runs"][1]["data"]
    assert (completed["run"], completed["tag"]) == (run["turn_number"], "ok")
    assert completed["tokens"] == run["tokens_used"]
    asked = found["asks"][1]["data"]
    assert (asked["approval_id"], asked["command"]) == (approval, "DROP TABLE users")
    assert found["spends"][1]["data"]["kind"] == "commands"
    assert "src/secret.py" in found["reads"][1]["data"]["error"]


async def test_a_session_that_could_not_be_created_is_told_of_with_its_end(
    api: Api, receiver: Receiver, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add(api, receiver, "session.created", "session.closed")

    async def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no engine")

    monkeypatch.setattr(api.plane.sandboxes, "start", fail)
    await api.problem(500, "internal_error", "POST", "/api/sessions", json={}, key=OPERATOR_KEY)
    created, closed = await got(receiver, 2)
    assert created.json["session"]["id"] == closed.json["session"]["id"]
    assert closed.json["data"]["acknowledged"] is False


async def test_others_hooks_do_not_exist(api: Api, receiver: Receiver) -> None:
    hook = await add(api, receiver)
    path = f"{HOOKS}/{hook['id']}"
    assert await listed(api, OTHER_KEY) == []
    for key in (OTHER_KEY, OPERATOR_KEY):
        at = path if key == OTHER_KEY else f"{HOOKS}/hook-0000000000000000"
        await api.problem(404, "not_found", "DELETE", at, key=key)
        await api.problem(404, "not_found", "GET", f"{at}/deliveries", key=key)
        retry = f"{at}/deliveries/dlv-0000000000000000/retry"
        await api.problem(404, "not_found", "POST", retry, key=key)
    assert [each["id"] for each in await listed(api, ADMIN_KEY)] == [hook["id"]]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"url": None}, "url"),
        ({"url": "ftp://ci.example.com/"}, "url"),
        ({"url": "https://user@ci.example.com/"}, "url"),
        ({"url": "https://ci.example.com:99999/"}, "url"),
        ({"url": "https://ci.example.com/a#b"}, "url"),
        ({"url": "https://ci.example.com/a b"}, "url"),
        ({"url": "https://ci.example.com/" + "a" * 2048}, "url"),
        ({"events": []}, "events"),
        ({"events": ["session.paused"]}, "events.0"),
        ({"events": "session.closed"}, "events"),
        ({"secret": "short"}, "secret"),
        ({"secret": "a secret with spaces"}, "secret"),
        ({"secret": "x" * 257}, "secret"),
        ({"key": "nobody"}, "key"),
        ({"key": 1}, "key"),
        ({"owner": "ci"}, "owner"),
    ],
)
async def test_bad_input_is_refused_and_changes_nothing(
    api: Api, change: dict[str, Any], field: str
) -> None:
    body = {"url": "https://ci.example.com/", "events": ENDS, **change}
    problem = await api.problem(400, "validation_error", "POST", HOOKS, json=body)
    assert problem["field"] == field
    assert await listed(api, ADMIN_KEY) == []
    audit = (await api.json("GET", "/api/audit?operation=hook.create"))["items"]
    assert audit == []


async def test_keys_use_permitted_urls_and_their_own_sessions_only(
    api: Api, receiver: Receiver
) -> None:
    above = receiver.url.removesuffix("hooks/paddock")
    for url in (
        above,
        f"{receiver.url}/../../admin",
        "https://ci.example.com/",
        above + "hooksies/",
    ):
        body = {"url": url, "events": ENDS}
        problem = await api.problem(
            403, "permission_denied", "POST", HOOKS, json=body, key=OPERATOR_KEY
        )
        assert problem["field"] == "url"
    body = {"url": receiver.url, "events": ENDS, "key": "other"}
    problem = await api.problem(
        403, "permission_denied", "POST", HOOKS, json=body, key=OPERATOR_KEY
    )
    assert problem["field"] == "key"
    session = await api.session(key=OPERATOR_KEY)
    await api.problem(403, "permission_denied", "POST", HOOKS, json=body, key=session["handle"])
    assert await listed(api, ADMIN_KEY) == []


async def test_there_is_no_url_for_keys_by_default(
    settings: Settings, engine: FakeEngine, agents: Agents, receiver: Receiver
) -> None:
    plane = await ControlPlane.open(settings.model_copy(update={"hook_prefixes": ()}), engine)
    async with served(plane, engine, agents) as api:
        body = {"url": receiver.url, "events": ENDS}
        problem = await api.problem(
            403, "permission_denied", "POST", HOOKS, json=body, key=OPERATOR_KEY
        )
        assert "permitted: none" in problem["detail"]
    await plane.close()


async def test_hooks_are_bounded(
    api: Api, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook_rules, "MOST_OF_KEY", 2)
    monkeypatch.setattr(hook_rules, "MOST_HOOKS", 3)
    body = {"url": receiver.url, "events": ENDS}
    hooks = [await add(api, receiver) for _ in range(2)]
    problem = await api.problem(409, "conflict", "POST", HOOKS, json=body, key=OPERATOR_KEY)
    assert problem["reason"] == "too_many_hooks"
    await add(api, receiver, key=OTHER_KEY)
    for key in (OTHER_KEY, ADMIN_KEY):
        await api.problem(409, "conflict", "POST", HOOKS, json=body, key=key)
    await api.json("DELETE", f"{HOOKS}/{hooks[0]['id']}", key=OPERATOR_KEY)
    await add(api, receiver)
    tasks = [task for task in api.plane.tasks._started if task.name is TaskName.HOOKS]
    assert len(tasks) == 3


async def test_a_secret_is_shown_once_and_stored_sealed(
    api: Api, receiver: Receiver, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    given = await add(api, receiver, secret=CANARY)
    made = await add(api, receiver)
    assert given["secret"] == CANARY
    assert len(made["secret"]) >= 40
    await end(api)
    timestamps = [
        (each.headers["paddock-timestamp"], each.headers["paddock-signature"], each.body)
        for each in await got(receiver, 2)
    ]
    for secret in (CANARY, made["secret"]):
        assert sum(verify(secret, *each) for each in timestamps) == 1
    hooks = await api.call("GET", HOOKS)
    events = (await api.json("GET", "/api/audit?operation=hook.create"))["items"]
    assert [each["args"]["id"] for each in events] == [made["id"], given["id"]]
    removed = await api.json("DELETE", f"{HOOKS}/{given['id']}")
    # The rest of a URL may have a token: the record has where it leads to, and no more.
    assert "/hooks/paddock" not in str(events)
    files = b"".join(path.read_bytes() for path in settings.state_dir.glob("paddock.db*"))
    for secret in (CANARY, made["secret"]):
        for shown in (await hooks.text(), str(events), str(removed), caplog.text):
            assert secret not in shown
        assert secret.encode() not in files


async def test_what_is_undelivered_is_shown_and_sent_again(
    api: Api, receiver: Receiver, clock: ManualClock
) -> None:
    hook = await given_up(api, receiver, clock)
    (kept,) = await undelivered(api, hook)
    assert (kept["session"], kept["type"]) == ("box", "session.closed")
    assert (kept["status"], kept["tries"], kept["error"]) == ("undelivered", 15, "status 500")
    assert kept["message"] == receiver.requests[0].json
    assert (await listed(api))[0]["undelivered"] == 1
    receiver.answer = lambda _: OK
    path = f"{HOOKS}/{hook['id']}/deliveries/{kept['id']}/retry"
    again = await api.json("POST", path, key=OPERATOR_KEY)
    assert (again["id"], again["status"], again["tries"]) == (kept["id"], "waiting", 0)
    assert (await got(receiver, MOST_TRIES + 1))[-1].json == kept["message"]
    await until(lambda: api.plane.hooks.total() == (0, 0))
    assert await undelivered(api, hook) == []
    await api.problem(404, "not_found", "POST", path, key=OPERATOR_KEY)


async def test_deliveries_are_shown_in_pages(
    api: Api, receiver: Receiver, clock: ManualClock
) -> None:
    hook = await add(api, receiver)
    receiver.answer = lambda _: HANGS
    for number in range(5):
        await end(api, id=f"box-{number}")
    await until(lambda: api.plane.hooks.total().waiting == 5)
    path, found = f"{HOOKS}/{hook['id']}/deliveries?limit=2", []
    cursor: int | None = 0
    while cursor is not None:
        page = await api.json("GET", f"{path}&cursor={cursor}", key=OPERATOR_KEY)
        found += [each["session"] for each in page["items"]]
        cursor = page["next"]
    assert found == [f"box-{number}" for number in range(5)]
    metrics = await (await api.call("GET", "/metrics")).text()
    assert "paddock_hook_deliveries_waiting 5.0" in metrics


async def test_a_removed_hook_gets_nothing_and_leaves_nothing(
    api: Api, receiver: Receiver, settings: Settings
) -> None:
    hook = await add(api, receiver)
    receiver.answer = lambda _: HANGS
    await end(api)
    await got(receiver, 1)
    removed = await api.json("DELETE", f"{HOOKS}/{hook['id']}", key=OPERATOR_KEY)
    assert (removed["id"], removed["waiting"]) == (hook["id"], 1)
    await end(api)
    assert await listed(api) == []
    assert api.plane.hooks.total() == (0, 0)
    with sqlite3.connect(settings.state_dir / "paddock.db") as connection:
        for table in ("hooks", "hook_positions", "hook_deliveries"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    connection.close()
    assert len(receiver.requests) == 1
    events = (await api.json("GET", "/api/audit?operation=hook.remove"))["items"]
    assert [each["args"]["id"] for each in events] == [hook["id"]]


async def test_a_removal_holds_even_if_it_is_not_on_record(
    api: Api, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook, path = await add(api, receiver), HOOKS
    with monkeypatch.context() as patch:
        patch.setattr(api.plane.ledger, "_closed", True)
        path = f"{HOOKS}/{hook['id']}"
        await api.problem(503, "audit_unavailable", "DELETE", path, key=OPERATOR_KEY)
    await end(api)
    assert [each["id"] for each in await listed(api)] == [hook["id"]]
    await api.json("DELETE", path, key=OPERATOR_KEY)
    assert receiver.requests == []


async def test_a_key_that_is_removed_is_told_nothing_more(
    api: Api, receiver: Receiver, settings: Settings, clock: ManualClock
) -> None:
    await add(api, receiver)
    session = await api.session(key=OPERATOR_KEY)
    assert settings.keys_file is not None
    settings.keys_file.write_text(entry("other", OTHER_KEY))
    await api.plane.reload.look()
    await api.json("DELETE", f"/api/sessions/{session['id']}")
    (hook,) = await listed(api, ADMIN_KEY)
    await until(lambda: _failed(api) == 1 and _pauses(api))
    path = f"{HOOKS}/{hook['id']}/deliveries"
    (waits,) = (await api.json("GET", path))["items"]
    assert waits["error"] == "the key operator is not valid any more"
    assert receiver.requests == []


async def test_a_restart_continues_and_a_prefix_that_is_gone_ends_it(
    settings: Settings, engine: FakeEngine, agents: Agents, receiver: Receiver, clock: ManualClock
) -> None:
    plane = await ControlPlane.open(settings, engine)
    async with served(plane, engine, agents) as api:
        hook = await add(api, receiver, secret=CANARY)
        receiver.answer = lambda _: HANGS
        await end(api, id="first")
        await got(receiver, 1)
        await api.session(id="second", key=OPERATOR_KEY)
    await plane.close()
    receiver.answer = lambda _: OK
    plane = await reopened(settings, engine, agents)
    async with served(plane, engine, agents) as api:
        await api.json("DELETE", "/api/sessions/second", key=OPERATOR_KEY)
        await got(receiver, 2)
        clock.advance(LONG)
        _, second, again = await got(receiver, 3)
        assert second.json["session"]["id"] == "second"
        assert again.json == receiver.requests[0].json
        signed = again.headers["paddock-timestamp"], again.headers["paddock-signature"]
        assert verify(CANARY, *signed, again.body)
        await until(lambda: plane.hooks.total() == (0, 0))
    await plane.close()
    plane = await reopened(settings.model_copy(update={"hook_prefixes": ()}), engine, agents)
    async with served(plane, engine, agents) as api:
        await end(api, id="third")
        await until(lambda: _failed(api) == 1 and _pauses(api))
        (waits,) = (await api.json("GET", f"{HOOKS}/{hook['id']}/deliveries"))["items"]
        assert "does not permit" in waits["error"]
        assert len(receiver.requests) == 3
    await plane.close()


async def test_a_secret_that_can_not_be_read_any_more_is_told_of(
    settings: Settings, engine: FakeEngine, agents: Agents, receiver: Receiver
) -> None:
    plane = await ControlPlane.open(settings, engine)
    async with served(plane, engine, agents) as api:
        await add(api, receiver)
    await plane.close()
    (settings.state_dir / KEY_FILE).unlink()
    plane = await reopened(settings, engine, agents)
    async with served(plane, engine, agents) as api:
        assert [each["lost"] for each in await listed(api)] == [True]
        await end(api)
        await until(lambda: _failed(api) == 1)
        assert receiver.requests == []
    await plane.close()


async def test_configured_hooks_are_kept_in_the_configuration(
    settings: Settings, engine: FakeEngine, agents: Agents, receiver: Receiver, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text(f"{CANARY}\n")
    hook = OperatorHook.model_validate(
        {"url": receiver.url, "secret_file": tmp_path / "secret", "events": ENDS, "key": "operator"}
    )
    configured = settings.model_copy(update={"hooks": {"ci": hook}})
    plane = await ControlPlane.open(configured, engine)
    async with served(plane, engine, agents) as api:
        (shown,) = await listed(api, ADMIN_KEY)
        assert (shown["id"], shown["configured"], shown["set_by"]) == ("ci", True, None)
        assert CANARY not in str(shown)
        assert await listed(api) == []
        await api.problem(409, "conflict", "DELETE", f"{HOOKS}/ci")
        await end(api, id="theirs", key=OTHER_KEY)
        await end(api, id="mine")
        (message,) = await got(receiver, 1)
        assert message.json["session"]["id"] == "mine"
        signed = message.headers["paddock-timestamp"], message.headers["paddock-signature"]
        assert verify(CANARY, *signed, message.body)
        receiver.answer = lambda _: HANGS
        await end(api, id="last")
        await got(receiver, 2)
    await plane.close()
    plane = await reopened(settings, engine, agents)
    left = await plane.database.read(
        lambda connection: connection.execute("SELECT count(*) FROM hook_deliveries").fetchone()
    )
    assert left == (0,)
    assert plane.hooks.total() == (0, 0)
    await plane.close()


async def test_a_full_disk_does_not_prevent_the_start(
    settings: Settings,
    engine: FakeEngine,
    agents: Agents,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hook = OperatorHook.model_validate({"url": receiver.url, "secret": CANARY, "events": ENDS})
    configured = settings.model_copy(update={"hooks": {"ci": hook}})
    write, full = Database.write, True

    async def refuse(self: Database, function: Any, **how: Any) -> Any:
        if full and "hook" in getattr(getattr(function, "func", None), "__module__", ""):
            raise StoreError("the disk is full")
        return await write(self, function, **how)

    monkeypatch.setattr(Database, "write", refuse)
    plane = await ControlPlane.open(configured, engine)
    async with served(plane, engine, agents) as api:
        await until(lambda: "hooks" in plane.tasks.check().detail)
        full = False
        await until(lambda: bool(plane.followers._of_all))
        await end(api, id="told-of")
        assert (await got(receiver, 1))[0].json["session"]["id"] == "told-of"
    await plane.close()


async def test_the_client_and_the_command_line(
    api: Api, receiver: Receiver, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(api.server.make_url("/"))
    monkeypatch.setenv("PADDOCK_URL", url)
    monkeypatch.setenv("PADDOCK_KEY", OPERATOR_KEY)
    added = await run_beside("hooks", "add", receiver.url, "--event", "session.closed")
    assert added.status == 0, added.err
    (hook,) = await listed(api)
    secret = added.out.strip()
    assert hook["id"] in added.err
    receiver.answer = lambda _: ERROR
    await end(api, id="box")
    (message,) = await got(receiver, 1)
    signed = message.headers["paddock-timestamp"], message.headers["paddock-signature"]
    assert verify(secret, *signed, message.body)
    shown = await run_beside("hooks", "list")
    assert hook["id"] in shown.out
    assert secret not in shown.out
    shown = await run_beside("hooks", "deliveries", hook["id"], "--status", "waiting")
    assert message.json["id"] in shown.out
    assert (await run_beside("hooks", "retry", hook["id"], "dlv-0000000000000000")).status == 5
    async with Paddock(url, OPERATOR_KEY) as paddock:
        (known,) = await paddock.hooks.list()
        assert (known.id, known.events) == (hook["id"], ["session.closed"])
        found = await paddock.hooks.deliveries(known.id)
        assert found.items[0].message == message.json
        with pytest.raises(NotFoundError):
            await paddock.hooks.retry(known.id, found.items[0].id)  # it is not given up
        own = await paddock.hooks.add(receiver.url, ["run.completed"], secret=CANARY)
        assert own.secret == CANARY
        await paddock.hooks.remove(own.id)
    removed = await run_beside("hooks", "remove", hook["id"])
    assert removed.status == 0
    assert await listed(api) == []


def test_settings_name_what_is_wrong() -> None:
    good = {"url": "https://a.example/", "secret": "x" * 16, "events": ENDS}
    settings = Settings.model_validate({"hooks": {"ci": good}, "admin_key": SecretStr("x" * 16)})
    assert settings.hooks["ci"].events == ("session.closed",)
