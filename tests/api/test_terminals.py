"""Terminals with a fake agent: what clients see, and what an agent can't fake."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from api.views.terminals import terminal as terminal_view
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import ConflictError, PermissionDeniedError, SandboxUnavailableError
from orchestrator.host.engine.base import ContainerState
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.record.audit import query
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.rules.tools.gates import Verdict
from orchestrator.settings.settings import Settings
from orchestrator.state.session import Session
from orchestrator.work.terminals.line_record import Exchange
from orchestrator.work.terminals.spec import SentLine
from paddock.contract.words import Kind
from tests.api.conftest import OPERATOR_KEY, OTHER_KEY, Api
from tests.support.fake_terminals import PROMPT
from tests.support.tool import always, judged, results, spec

CLIENT = Principal("agent", Role.ADMIN)


async def opened(api: Api, **members: Any) -> tuple[str, Session, dict[str, Any]]:
    """The path of a new session, the session, and a terminal of that session."""
    created = await api.session(permission_level="high", key=OPERATOR_KEY)
    session = api.plane.sessions.finder.find(CLIENT, created["id"])
    record = await api.plane.terminals.open(CLIENT, session, spec(**members))
    return f"/api/sessions/{session.id}", session, terminal_view(record).raw


async def interact(
    api: Api, session: Session, terminal: dict[str, Any], text: str, verdict: Verdict | None = None
) -> Exchange:
    decide = always(verdict or judged())
    return await api.plane.terminals.interact(sent(session, terminal, text), decide)


def sent(session: Session, terminal: dict[str, Any], text: str) -> SentLine:
    return SentLine(CLIENT, session, terminal["id"], "fake.do", text)


async def test_a_terminal_from_its_start_to_its_end(api: Api) -> None:
    path, session, terminal = await opened(api)
    place = f"{path}/ptys/{terminal['id']}"
    assert await api.json("GET", place) == terminal
    assert (await api.json("GET", f"{path}/ptys"))["items"] == [terminal]
    answer = await interact(api, session, terminal, "hello")
    assert results(answer).output == "you said hello"
    ended = await api.json("DELETE", place)
    assert (ended["status"], ended["reason"], ended["exit_code"]) == ("terminated", "closed", 143)
    assert await api.json("DELETE", place) == ended
    assert (await api.json("GET", f"{path}/ptys"))["items"] == [ended]
    response = await api.call("GET", f"{place}/transcript")
    assert response.content_type == "text/plain"
    text = await response.text()
    assert [line.split()[1] for line in text.splitlines()] == [
        *("STARTUP", "READY", "INPUT", "OUTPUT", "CLOSED")
    ]


async def test_evidence_counts_as_what_is_on_record(api: Api) -> None:
    path, session, terminal = await opened(api)
    await interact(api, session, terminal, "x" * 1000)
    before = session.budget.used(Kind.AUDIT_BYTES)
    await interact(api, session, terminal, "x" * 3000)
    assert session.budget.used(Kind.AUDIT_BYTES) - before > 5000  # events, transcript, output
    ended = await api.json("DELETE", f"{path}/ptys/{terminal['id']}")
    kinds = ("raw", "transcript", "recording")
    kept = sum(ended["evidence"][f"{kind}_bytes"] for kind in kinds)
    stored, events = await api.plane.database.read(
        lambda connection: connection.execute(
            "SELECT audit_bytes, (SELECT sum(length(CAST(body AS BLOB)) + 512) FROM events"
            " WHERE session_key = sessions.key) FROM sessions WHERE key = ?",
            (session.key,),
        ).fetchone()
    )
    assert stored == events + kept == session.budget.used(Kind.AUDIT_BYTES)


async def test_terminals_are_readable_after_their_session(api: Api) -> None:
    path, _, terminal = await opened(api)
    await api.json("DELETE", path)
    place = f"{path}/ptys/{terminal['id']}"
    assert (await api.json("GET", place))["reason"] == "session_ended"
    assert "session_ended" in await (await api.call("GET", f"{place}/transcript")).text()


async def test_terminals_of_others_are_not_there(api: Api) -> None:
    path, _, terminal = await opened(api)
    other = await api.session(key=OPERATOR_KEY)
    for method, suffix in (("GET", ""), ("GET", "/transcript"), ("DELETE", "")):
        for place, key in (
            (f"{path}/ptys/{terminal['id']}{suffix}", OTHER_KEY),
            (f"/api/sessions/{other['id']}/ptys/{terminal['id']}{suffix}", OPERATOR_KEY),
            (f"{path}/ptys/pty-0000000000000000{suffix}", OPERATOR_KEY),
        ):
            await api.problem(404, "not_found", method, place, key=key)


async def test_a_paused_session_keeps_its_terminals(api: Api) -> None:
    path, _, terminal = await opened(api)
    await api.json("POST", f"{path}/pause", json={})
    place = f"{path}/ptys/{terminal['id']}"
    await api.problem(409, "invalid_transition", "DELETE", place)
    assert (await api.json("GET", place))["status"] == "ready"
    await api.json("POST", f"{path}/resume", json={})
    assert (await api.json("DELETE", place))["reason"] == "closed"


async def test_an_agent_ends_only_its_own_terminals(api: Api) -> None:
    path, _, terminal = await opened(api)
    await api.session(permission_level="high")
    impostor = api.agent
    impostor.terminals.report(terminal["id"], {"exit_code": 0, "signal": None, "reason": "fake"})
    await asyncio.gather(*(sandbox_settled(api, each) for each in api.plane.sessions.registry.all))
    assert (await api.json("GET", f"{path}/ptys/{terminal['id']}"))["status"] == "ready"


async def sandbox_settled(api: Api, session: Session) -> None:
    assert session.sandbox is not None
    await session.sandbox.link.request("stats", {})
    await session.sandbox.link.settled()


@pytest.mark.parametrize(
    "result", [{}, {"exit_code": None}, {"exit_code": 0, "signal": 7, "reason": None}]
)
async def test_a_malformed_end_is_an_end(api: Api, result: dict[str, Any]) -> None:
    path, session, terminal = await opened(api)
    api.agent.terminals.report(terminal["id"], result)
    (live,) = api.plane.terminals.live(session)
    await live.closed.wait()
    view = await api.json("GET", f"{path}/ptys/{terminal['id']}")
    assert (view["status"], view["reason"], view["exit_code"]) == ("terminated", "exited", None)
    with pytest.raises(ConflictError, match="has ended"):
        await interact(api, session, terminal, "more")


async def test_an_agent_that_answers_with_garbage_leaves_it_out_of_step(api: Api) -> None:
    path, session, terminal = await opened(api, output_wait_ms=50)
    api.agent.overrides["pty.send"] = lambda _: {"mark": -1}
    with pytest.raises(SandboxUnavailableError):
        await interact(api, session, terminal, "hello")
    view = await api.json("GET", f"{path}/ptys/{terminal['id']}")
    assert (view["status"], view["interaction_count"]) == ("timed_out", 0)
    del api.agent.overrides["pty.send"]
    assert (await interact(api, session, terminal, "again")).status == "success"


async def test_a_late_prompt_changes_what_is_decided(api: Api) -> None:
    _, session, terminal = await opened(api, output_wait_ms=50)
    states: list[str] = []

    def decide(situation: Any) -> Verdict:
        states.append(situation.session_state)
        denied = judged("deny", "cedar", "not as an admin")
        return denied if situation.session_state == "admin" else judged()

    api.agent.terminals.all[terminal["id"]].say(b"\r\nnow as root\r\ntool=# ")
    with pytest.raises(PermissionDeniedError, match="not as an admin"):
        await api.plane.terminals.interact(sent(session, terminal, "drop"), decide)
    assert states == ["ready", "admin"]
    assert b"drop" not in api.agent.terminals.all[terminal["id"]].said


async def said_late(api: Api, path: str) -> list[tuple[str, str]]:
    """The late output of terminals, which must be recorded before the first close."""
    items = (await api.json("GET", f"{path}/audit"))["items"]
    names = [event["operation"] for event in items]
    assert names.index("pty.output") < names.index("pty.close")
    return [
        (event["args"]["terminal_id"], event["result"]["output"])
        for event in items
        if event["operation"] == "pty.output"
    ]


@pytest.mark.parametrize("end", ["close", "exit", "session"])
async def test_what_a_tool_says_after_its_last_answer_is_on_record(api: Api, end: str) -> None:
    path, session, terminal = await opened(api)
    assert (await interact(api, session, terminal, "hello")).status == "success"
    api.agent.terminals.all[terminal["id"]].say(b"\r\nthe backup failed\r\n" + PROMPT)
    await leave(api, path, terminal, end)
    ((terminal_id, output),) = await said_late(api, path)
    assert (terminal_id, output.strip()) == (terminal["id"], "the backup failed")


@pytest.mark.parametrize("end", ["close", "exit", "session"])
async def test_what_comes_after_a_timeout_is_on_record(api: Api, end: str) -> None:
    path, session, terminal = await opened(api, output_wait_ms=50)
    api.agent.terminals.answers["long"] = b"long\r\nbegun\r\n"
    assert (await interact(api, session, terminal, "long")).status == "timeout"
    api.agent.terminals.all[terminal["id"]].say(b"and done\r\n" + PROMPT)
    await leave(api, path, terminal, end)
    ((_, output),) = await said_late(api, path)
    assert output.strip() == "and done"


async def leave(api: Api, path: str, terminal: dict[str, Any], end: str) -> None:
    (session,) = api.plane.sessions.registry.all
    (live,) = api.plane.terminals.live(session)
    if end == "close":
        await api.json("DELETE", f"{path}/ptys/{terminal['id']}")
    elif end == "session":
        await api.json("DELETE", path)
    else:
        api.agent.terminals.end(terminal["id"], 0, None)
    await live.closed.wait()


async def test_ends_are_told_before_anybody_can_act_on_them(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, session, terminal = await opened(api)
    told: list[tuple[str, str, bool]] = []
    (live,) = api.plane.terminals.live(session)

    async def on_end(_: Session, terminal_id: str, reason: str) -> None:
        told.append((terminal_id, reason, live.closed.is_set()))

    monkeypatch.setattr(api.plane.terminals._ends, "_on_end", on_end)
    await api.json("DELETE", f"{path}/ptys/{terminal['id']}")
    assert told == [(terminal["id"], "closed", False)]


async def test_a_prompt_in_pieces(api: Api) -> None:
    _, session, terminal = await opened(api)
    api.agent.terminals.answers["x"] = b"x\r\nout\r\ntool="
    waiting = asyncio.create_task(interact(api, session, terminal, "x"))
    await api.agent.asked("pty.send")
    api.agent.terminals.all[terminal["id"]].say(PROMPT.removeprefix(b"tool="))
    assert results(await waiting).output == "out"


async def test_terminals_that_ended_with_both_are_in_the_gap(
    api: Api, settings: Settings, engine: FakeEngine
) -> None:
    _, session, terminal = await opened(api)
    # As if the control plane and the sandbox had been killed at the same time.
    api.plane.terminals._live.clear()
    await api.plane.close()
    (container,) = engine.containers.values()
    engine.containers[container.id] = replace(container, state=ContainerState.EXITED, exit_code=137)
    again = await ControlPlane.open(settings, engine)
    try:
        events = await query.events(again.database, session.key)
        gap, closed = (
            next(event for event in events if event["operation"] == operation)
            for operation in ("audit.gap", "pty.close")
        )
        assert gap["args"] == {"commands": [], "terminals": [terminal["id"]]}
        assert closed["args"]["terminal_id"] == terminal["id"]
    finally:
        await again.close()
