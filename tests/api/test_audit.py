"""The audit chain over HTTP: pages, counts, export, verification, and the live stream."""

import asyncio
import json
import threading
from typing import Any

import pytest

from api.shape.answers import HEARTBEAT_SECONDS
from orchestrator.ground.round_robin import asker
from orchestrator.record.audit.recorded_event import Recorded
from orchestrator.record.audit.recorder import Recorder
from paddock.audit.chain import verify_chain
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, OTHER_KEY, Api
from tests.api.test_exec import read_event, read_events
from tests.support.cases import each
from tests.support.limits import WAIT_SECONDS
from tests.support.until import until


@pytest.fixture
async def path(api: Api) -> str:
    path = f"/api/sessions/{(await api.session(key=OPERATOR_KEY))['id']}"
    for _ in range(3):
        await api.json("POST", path + "/exec", json={"command": "ls"})
    return path


async def test_query(api: Api, path: str) -> None:
    everything = await api.json("GET", path + "/audit")
    assert [event["seq"] for event in everything["items"]] == list(range(1, 8))
    assert everything["next"] is None
    first = await api.json("GET", path + "/audit?limit=2")
    second = await api.json("GET", f"{path}/audit?limit=2&after={first['next']}")
    assert [event["seq"] for event in second["items"]] == [3, 4]
    starts = await api.json("GET", path + "/audit?operation=command.start&decision=allow")
    assert len(starts["items"]) == 3
    counted = await api.json("GET", path + "/audit/stats")
    assert counted["operation_counts"]["command.exit"] == 3


async def test_export_verifies(api: Api, path: str) -> None:
    response = await api.call("GET", path + "/audit/export?format=jsonl")
    assert response.content_type == "application/jsonl"
    lines = (await response.text()).splitlines(keepends=True)
    assert verify_chain(lines).ok
    head = json.loads(lines[-1])
    good = await api.json("GET", f"{path}/audit/verify?seq={head['seq']}&hash={head['hash']}")
    assert good == {"ok": True, "index": None, "reason": None} | {
        key: head[key] for key in ("seq", "hash")
    }
    bad = await api.json("GET", f"{path}/audit/verify?seq={head['seq']}&hash={'0' * 64}")
    assert bad["ok"] is False
    await api.problem(400, "validation_error", "GET", path + "/audit/verify?seq=1")


async def test_session_events_resume_and_end(api: Api, path: str) -> None:
    stream = await api.call("GET", path + "/events")
    assert stream.content_type == "text/event-stream"
    seen = [await read_event(stream) for _ in range(7)]
    assert [int(event_id or 0) for _, _, event_id in seen] == list(range(1, 8))
    assert seen[0][0] == "session.create"
    assert seen[0][1]["seq"] == 1
    stream.close()
    resumed = await api.call("GET", path + "/events?after=2", headers={"Last-Event-ID": "6"})
    assert (await read_event(resumed))[1]["seq"] == 7
    await api.json("POST", path + "/exec", json={"command": "ls"})
    assert (await read_event(resumed))[0] == "command.start"
    await api.json("DELETE", path)
    names = [name for name, _, _ in await read_events(resumed)]
    assert names[-1] == "session.terminated"
    over = await api.call("GET", path + "/events?after=9")
    assert [name for name, _, _ in await read_events(over)] == names[1:]


@pytest.mark.slow
@pytest.mark.parametrize("call", ["resume", "remove"])
async def test_session_events_end_with_the_last_one_however_slow_the_engine_is(
    api: Api, path: str, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr("orchestrator.sandbox.sandboxes.stopper._FREEZE_SECONDS", 0.1)
    stream = await api.call("GET", path + "/events")
    released = api.engine.hang_next(call)
    closing = asyncio.create_task(api.call("DELETE", path))
    names = [name for name, _, _ in await read_events(stream)]
    assert names[-1] == "session.terminated"
    assert not closing.done() or call == "resume"
    released.set()
    assert (await closing).status == 200
    assert api.engine.containers == {}


@pytest.mark.parametrize("by_handle", [False, True])
async def test_session_events_end_at_once(
    api: Api, monkeypatch: pytest.MonkeyPatch, by_handle: bool
) -> None:
    session = await api.session()
    path = f"/api/sessions/{session['id']}"
    stream = await api.call(
        "GET", path + "/events", key=session["handle"] if by_handle else ADMIN_KEY
    )
    told = asyncio.Event()
    record = Recorder.record

    async def record_and_be_slow(self: Recorder, *args: Any, **more: Any) -> Recorded:
        recorded = await record(self, *args, **more)
        if args[1].operation == "session.terminated":
            await told.wait()
        return recorded

    # The stream must send the last event and wait again before it sees that the session ended.
    monkeypatch.setattr(Recorder, "record", record_and_be_slow)
    ending = asyncio.create_task(api.json("DELETE", path))
    while (await read_event(stream))[0] != "session.terminated":
        pass
    told.set()
    async with asyncio.timeout(HEARTBEAT_SECONDS / 2):
        await ending
        await read_events(stream)


async def test_all_events_are_the_callers(api: Api, path: str) -> None:
    everybody = await api.call("GET", "/api/events?after=0")
    assert (await read_event(everybody))[1]["id"] == 1
    mine = await api.call("GET", "/api/events?after=0", key=OPERATOR_KEY)
    assert (await read_event(mine))[0] == "session.create"
    theirs = await api.call("GET", "/api/events", key=OTHER_KEY)
    live = await api.call("GET", "/api/events", key=ADMIN_KEY)
    await api.json("POST", path + "/exec", json={"command": "ls"})
    new = await api.session(key=OTHER_KEY, id="theirs")
    event = (await read_event(theirs))[1]
    assert (event["operation"], event["session_id"]) == ("session.create", new["id"])
    assert (await read_event(live))[0] == "command.start"


async def test_stream_of_a_handle_ends_with_the_handle(
    api: Api, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = (await api.json("POST", path + "/handle"))["handle"]
    stream = await api.call("GET", path + "/events", key=handle)
    await read_event(stream)
    await api.json("POST", path + "/handle")
    async with asyncio.timeout(WAIT_SECONDS):
        names = [name for name, _, _ in await read_events(stream)]
    assert names[-1] in ("command.exit", "session.settings")


async def test_heartbeat(api: Api, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.operations.events.HEARTBEAT_SECONDS", 0.01)
    stream = await api.call("GET", path + "/events?after=100")
    async with asyncio.timeout(WAIT_SECONDS):
        assert await stream.content.readline() == b": alive\n"


@each("last", ["x", "-1", "1.5", ""])
async def test_bad_last_event_id(api: Api, path: str, last: str) -> None:
    await api.problem(
        400, "validation_error", "GET", path + "/events", headers={"Last-Event-ID": last}
    )


async def test_audit_unavailable(api: Api, path: str) -> None:
    await api.plane.ledger.close()
    await api.problem(503, "audit_unavailable", "POST", path + "/exec", json={"command": "ls"})
    await api.plane.database.close()
    problem = await api.problem(503, "audit_unavailable", "GET", path + "/audit")
    assert "paddock.db" not in problem["detail"]
    not_ready = await api.json("GET", "/readyz", key=None, status=503)
    assert not_ready["checks"]["audit"]["ok"] is False


async def test_what_looks_through_records_holds_up_no_session(api: Api, path: str) -> None:
    """Sessions can be made, used and closed while the reader of lists and statistics hangs."""
    release = threading.Event()
    browsing = asyncio.create_task(api.plane.database.browse(lambda _: release.wait()))
    try:
        listing = asyncio.create_task(api.call("GET", path + "/audit"))
        stream = await api.call("GET", path + "/events")
        async with asyncio.timeout(WAIT_SECONDS):
            new = await api.session()
            used = f"/api/sessions/{new['id']}"
            await api.json("POST", used + "/exec", json={"command": "ls"})
            await api.json("DELETE", used)
        assert not listing.done()
    finally:
        release.set()
        await browsing
    assert (await listing).status == 200
    assert (await read_event(stream))[0] == "session.create"


@pytest.mark.slow
async def test_whoever_asks_often_keeps_no_other_key_waiting(
    api: Api, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handles of a key share that key's slots, and are served round robin."""
    handle = (await api.session(key=OPERATOR_KEY, id="mine"))["handle"]
    await api.session(key=OTHER_KEY, id="theirs")
    began, free = threading.Event(), threading.Event()
    asked: list[tuple[str, ...]] = []
    order: list[tuple[str, ...]] = []
    browse = api.plane.database.browse

    async def noting(function: Any) -> Any:
        who = asker()

        def work(connection: Any) -> Any:
            began.set()
            assert free.wait(WAIT_SECONDS)
            order.append(who)
            return function(connection)

        asked.append(who)
        return await browse(work)

    monkeypatch.setattr(api.plane.database, "browse", noting)
    listing = "/api/sessions/{}/audit/stats"
    calls: list[asyncio.Task[Any]] = []

    def all_have_asked() -> bool:
        return len(asked) == len(calls)

    for name, key in [*[("mine", handle)] * 30, ("mine", OPERATOR_KEY), ("theirs", OTHER_KEY)]:
        calls.append(asyncio.create_task(api.call("GET", listing.format(name), key=key)))
        await until(all_have_asked)
    await asyncio.to_thread(began.wait, 60)
    free.set()
    assert {(await call).status for call in calls} == {200}
    assert order.index(("other", "other")) <= 2
    assert order.index(("operator", "operator")) <= 3
    assert order.count(("operator", "handle:mine")) == 30


async def test_streams_read_the_ledger_no_more_than_once_each(
    api: Api, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Followers that keep up read nothing from the database, however much is committed."""
    streams = [await api.call("GET", path + "/events") for _ in range(20)]
    for stream in streams:
        await read_event(stream)
    looked_up = 0
    browse = api.plane.database.browse

    async def counting(function: Any) -> Any:
        nonlocal looked_up
        looked_up += 1
        return await browse(function)

    monkeypatch.setattr(api.plane.database, "browse", counting)
    for _ in range(5):
        await api.json("POST", path + "/exec", json={"command": "ls"})
    for stream in streams:
        seen = [(await read_event(stream))[0] for _ in range(10)]
        assert seen == ["command.start", "command.exit"] * 5
    assert looked_up <= len(streams)  # at most one look each
