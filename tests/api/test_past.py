"""Past records can be found: sessions of one id, old sessions, events of all sessions."""

import json
from typing import Any

import pytest

from orchestrator.record.search_index import search as searching
from orchestrator.settings.settings import Settings
from paddock import Paddock
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, OTHER_KEY, Api
from tests.support.cases import each
from tests.support.cli import run_beside

pytestmark = pytest.mark.slow

AUDIT = "/api/sessions/box/audit"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Ended sessions are not kept in memory."""
    return settings.model_copy(update={"terminated_ttl": 0})


async def lives(api: Api, number: int, **body: Any) -> list[dict[str, Any]]:
    """Several sessions of one id, one after the other; the last one is still live."""
    made = []
    for count in range(number):
        if count:
            await api.json("DELETE", "/api/sessions/box")
        made.append(await api.session(id="box", labels={"n": str(count + 1)}, **body))
        for _ in range(count):
            await api.json("POST", "/api/sessions/box/exec", json={"argv": ["ls"]})
    return made


async def items(api: Api, path: str, **arguments: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await api.json("GET", path, **arguments))["items"]
    return found


async def test_sessions_of_one_id_are_told_apart(api: Api) -> None:
    made = await lives(api, 3)
    assert [view["incarnation"] for view in made] == [1, 2, 3]
    heads = set()
    for number in (1, 2, 3):
        events = await items(api, f"{AUDIT}?incarnation={number}&limit=1000")
        assert {event["incarnation"] for event in events} == {number}
        assert {event["session_id"] for event in events} == {"box"}
        starts = [event for event in events if event["operation"] == "command.start"]
        assert len(starts) == number - 1
        stats = await api.json("GET", f"{AUDIT}/stats?incarnation={number}")
        assert stats["total_operations"] == len(events)
        verdict = await api.json("GET", f"{AUDIT}/verify?incarnation={number}")
        assert (verdict["ok"], verdict["seq"]) == (True, len(events))
        heads.add(verdict["hash"])
        exported = await (await api.call("GET", f"{AUDIT}/export?incarnation={number}")).text()
        assert len(exported.splitlines()) == len(events)
    assert len(heads) == 3
    latest = await items(api, AUDIT)
    assert {event["incarnation"] for event in latest} == {3}


@pytest.mark.parametrize("what", ["", "/stats", "/export", "/verify"])
async def test_incarnations_that_are_not_there(api: Api, what: str) -> None:
    first, second = await lives(api, 2, key=OPERATOR_KEY)
    await api.problem(404, "not_found", "GET", f"{AUDIT}{what}?incarnation=3")
    for bad in ("0", "-1", "x", "1.0", ""):
        problem = await api.problem(
            400, "validation_error", "GET", f"{AUDIT}{what}?incarnation={bad}"
        )
        assert problem["field"] == "incarnation"
    # Other callers don't find the session; a handle finds only its own session.
    path = f"{AUDIT}{what}?incarnation=1"
    await api.problem(404, "not_found", "GET", path, key=OTHER_KEY)
    await api.problem(404, "not_found", "GET", path, key=second["handle"])
    assert (await api.call("GET", path, key=OPERATOR_KEY)).status == 200
    path = f"{AUDIT}{what}?incarnation=2"
    assert (await api.call("GET", path, key=second["handle"])).status == 200
    await api.problem(401, "unauthorized", "GET", path, key=first["handle"])


async def test_a_session_that_nobody_was_told_of_has_its_number(api: Api) -> None:
    await lives(api, 1)
    await api.json("DELETE", "/api/sessions/box")
    api.engine.fail_next("create")
    await api.problem(503, "engine_unavailable", "POST", "/api/sessions", json={"id": "box"})
    assert (await api.session(id="box"))["incarnation"] == 3


async def test_numbers_go_on_after_a_purge(api: Api) -> None:
    await lives(api, 2)
    await api.json("DELETE", "/api/sessions/box?purge=true")
    assert (await api.session(id="box"))["incarnation"] == 3
    assert (await api.session(id="other"))["incarnation"] == 1


def names(views: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(view["id"], view["incarnation"]) for view in views]


async def test_all_that_ever_were_are_listed(api: Api) -> None:
    await lives(api, 3)
    await api.session(id="mine", key=OPERATOR_KEY, labels={"team": "a"})
    await api.json("POST", "/api/sessions/mine/abort", key=OPERATOR_KEY)
    assert [view["id"] for view in await items(api, "/api/sessions")] == ["box"]
    ended = await items(api, "/api/sessions?status=ended")
    every = [("mine", 1), ("box", 2), ("box", 1)]
    assert names(ended) == every
    assert ended[0]["termination"]["exit_classification"] == "FAILURE"
    assert all(view["sandbox"] is None and view["activity"] == "closed" for view in ended)
    # Page by page, by how they ended, by label, and for each key its own sessions.
    cursor: str | None = ""
    pages: list[dict[str, Any]] = []
    while cursor is not None:
        page = await api.json("GET", f"/api/sessions?status=ended&limit=1{cursor}")
        pages += page["items"]
        cursor = page["next"] and f"&cursor={page['next']}"
    assert names(pages) == every
    for query, key, expected in (
        ("aborted", ADMIN_KEY, every[:1]),
        ("completed&label=n:1", ADMIN_KEY, every[2:]),
        ("ended&label=team:a", ADMIN_KEY, every[:1]),
        ("ended&label=team:b", ADMIN_KEY, []),
        ("ended", OPERATOR_KEY, every[:1]),
        ("ended", OTHER_KEY, []),
    ):
        assert names(await items(api, f"/api/sessions?status={query}", key=key)) == expected
    bad = "/api/sessions?status=ended&cursor=x"
    assert (await api.problem(400, "validation_error", "GET", bad))["field"] == "cursor"


async def worked(api: Api) -> None:
    """Two sessions of two keys: one with a refusal, one with its name in the command."""
    await api.session(id="box", key=OPERATOR_KEY, permission_level="high")
    await api.session(id="other", key=OTHER_KEY, permission_level="low")
    path = "/api/sessions/{}/exec"
    await api.json(
        "POST", path.format("box"), json={"argv": ["ls", 'a "b"_%\\é']}, key=OPERATOR_KEY
    )
    await api.problem(
        403,
        "permission_denied",
        "POST",
        path.format("other"),
        json={"argv": ["curl", "x"]},
        key=OTHER_KEY,
    )


async def found(api: Api, key: str = ADMIN_KEY, **params: str) -> list[tuple[str | None, str]]:
    """Session and operation of each event found, oldest first."""
    events = await items(api, "/api/audit", params={"limit": "1000", **params}, key=key)
    assert [event["id"] for event in events] == sorted(
        (event["id"] for event in events), reverse=True
    )
    return [(event["session_id"], event["operation"]) for event in reversed(events)]


async def test_events_are_found_over_all_sessions(api: Api) -> None:
    await worked(api)
    everything = await found(api)
    assert (None, "recovery") in everything
    box = [("box", name) for name in ("session.create", "command.start", "command.exit")]
    refused = [("other", "command.start")]
    assert await found(api, session="box") == box
    assert await found(api, session="box", incarnation="1") == box
    assert await found(api, session="box", incarnation="2") == []
    assert await found(api, session="BOX") == []
    assert await found(api, owner="operator") == box
    assert await found(api, decision="deny") == refused
    assert await found(api, decision="deny", session="box") == []
    rule = (await items(api, "/api/audit?decision=deny"))[0]["rule"]
    assert await found(api, rule=rule) == refused
    assert await found(api, actor="other", operation="command.start") == refused
    assert await found(api, operation="command.exit") == box[2:]
    for text in ('"b"_%', "\\é", 'A "B"'):
        assert await found(api, text=text) == box[1:2]
    assert await found(api, text="_%_") == []
    # An operator does not find others' sessions, and finds all of its own.
    assert await found(api, OPERATOR_KEY) == box
    assert await found(api, OPERATOR_KEY, session="other") == []
    assert await found(api, OPERATOR_KEY, owner="other") == []
    assert await found(api, OTHER_KEY, decision="deny") == refused
    handle = (await api.session(id="third"))["handle"]
    await api.problem(403, "permission_denied", "GET", "/api/audit", key=handle)


async def test_events_are_found_by_time(api: Api) -> None:
    await worked(api)
    events = (await items(api, "/api/audit?limit=1000"))[::-1]
    times = [event["time"] for event in events]
    first, last = times[1], times[-2]
    wanted = [event["id"] for event in events if first <= event["time"] <= last]
    within = await items(api, "/api/audit", params={"from": first, "to": last})
    assert [event["id"] for event in within] == wanted[::-1]
    assert await items(api, "/api/audit?to=2001-01-01T00:00:00Z") == []
    assert await items(api, "/api/audit?from=2999-01-01T00:00:00%2B01:00") == []
    for name in ("from", "to"):
        for bad in ("x", "2026-01-01", "2026-01-01T00:00:00", "0001-01-01T00:00:00%2B14:00"):
            problem = await api.problem(400, "validation_error", "GET", f"/api/audit?{name}={bad}")
            assert problem["field"] == name


async def test_a_search_looks_at_a_part_and_goes_on(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "MOST_EXAMINED", 2)
    await worked(api)
    for params, expected in (
        ({"text": "recovery"}, [(None, "recovery")]),
        ({"owner": "operator"}, await found(api, OPERATOR_KEY) and None),
    ):
        cursor: str | None = None
        collected: list[dict[str, Any]] = []
        pages = 0
        while pages == 0 or cursor is not None:
            more = {} if cursor is None else {"cursor": cursor}
            page = await api.json("GET", "/api/audit", params={**params, **more})
            assert len(page["items"]) <= 2
            collected += page["items"]
            cursor = None if page["next"] is None else str(page["next"])
            pages += 1
        assert pages > 1
        if expected is not None:
            assert [(e["session_id"], e["operation"]) for e in collected] == expected
        else:
            assert {event["session_id"] for event in collected} == {"box"}
            assert len(collected) == 3


async def test_few_events_of_a_key_or_a_time_are_found_at_once(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await worked(api)
    before = await api.json("GET", "/api/audit?limit=1")
    until = {"to": before["items"][0]["time"]}
    await api.session(id="more")
    for _ in range(30):
        await api.json("POST", "/api/sessions/more/exec", json={"argv": ["ls"]})
    earlier = await api.json("GET", "/api/audit", params=until)
    assert earlier["items"][0] == before["items"][0]
    assert earlier["next"] is None
    monkeypatch.setattr(searching, "MOST_EXAMINED", 30)
    whole = await api.json("GET", "/api/audit", params={"owner": "operator"})
    assert len(whole["items"]) == 3
    assert whole["next"] is None
    # More events than one search examines: the search continues on a next page.
    assert (await api.json("GET", "/api/audit?text=nothing-has-that"))["next"] is not None


async def test_events_of_earlier_versions_get_their_incarnation(api: Api) -> None:
    await api.session(id="box")
    await api.plane.database.write(
        lambda connection: (
            connection.execute(
                "UPDATE events SET body = json_remove(body, '$.incarnation')"
            ).rowcount
        )
    )
    for path in ("/api/audit?session=box", "/api/sessions/box/audit"):
        found = (await api.json("GET", path))["items"]
        assert found
        assert {event["incarnation"] for event in found} == {1}


async def test_the_search_index_is_made_again(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{api.server.port}")
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    await worked(api)
    whole = await items(api, "/api/audit")
    ended = await run_beside("audit", "reindex", "--json")
    assert (ended.status, json.loads(ended.out)) == (0, {"position": (n := len(whole)), "end": n})
    assert f"{n} events are indexed" in (await run_beside("audit", "reindex")).line
    assert await items(api, "/api/audit") == whole
    metrics = await (await api.call("GET", "/metrics")).text()
    assert "paddock_audit_index_lag_events 0.0" in metrics
    begun = await api.json("POST", "/api/audit/index", json={})
    assert begun == {"position": 0, "end": n}
    await api.problem(
        403, "permission_denied", "POST", "/api/audit/index", json={}, key=OPERATOR_KEY
    )
    for bad in ({"after": -1}, {"after": "x"}, {"after": 2**60}, {"other": 1}):
        problem = await api.problem(400, "validation_error", "POST", "/api/audit/index", json=bad)
        assert problem["field"] == next(iter(bad))


@each(
    ("query", "field"),
    [
        ("decision=no", "decision"),
        ("incarnation=0", "incarnation"),
        ("cursor=0", "cursor"),
        ("cursor=x", "cursor"),
        ("limit=0", "limit"),
        ("text=", "text"),
        ("text=" + "x" * 257, "text"),
        ("since=2026-01-01T00:00:00Z", "since"),
        ("other=1", "other"),
    ],
)
async def test_searches_that_can_not_be(api: Api, query: str, field: str) -> None:
    problem = await api.problem(400, "validation_error", "GET", f"/api/audit?{query}")
    assert problem["field"] == field


async def test_by_the_client(api: Api) -> None:
    await lives(api, 2)
    async with Paddock(str(api.server.make_url("")), ADMIN_KEY) as paddock:
        first, latest = (paddock.sessions.audit("box", incarnation=n) for n in (1, None))
        events = [event async for event in first.events()]
        assert {event.incarnation for event in events} == {1}
        assert (await first.stats()).total_operations == len(events)
        assert (await first.verify()).seq == len(events)
        assert len([line async for line in first.export()]) == len(events)
        assert {event.incarnation async for event in latest.events()} == {2}
        ended = await paddock.sessions.list(status="ended")
        assert [session.info.incarnation for session in ended] == [1]
        hits = [event async for event in paddock.search(session="box", incarnation=1)]
        assert [event.id for event in hits] == [event.id for event in reversed(events)]
        since = events[-1].time
        late = [event async for event in paddock.search(session="box", since=since, until=since)]
        assert events[-1].id in [event.id for event in late]
