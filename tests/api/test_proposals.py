"""Proposals over HTTP: who may do what, their form, and bad input."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from orchestrator.state.lifecycle import Suspension
from paddock import Paddock
from tests.api.conftest import ADMIN_KEY, Api
from tests.support.cli import run_beside
from tests.support.limits import WAIT_SECONDS
from tests.support.until import until

pytestmark = pytest.mark.slow

POLICY: dict[str, Any] = {
    "world_rules": {
        "read_patterns": ["**/*"],
        "write_patterns": ["**/*"],
        "read_only": False,
        "proposal_mode": True,
    }
}
URL = "/api/sessions/box/proposals"
NOTHING = {"write": 0, "delete": 0}


def stage(api: Api, name: str, text: str) -> Path:
    """Writes through the mount that the sandbox has, and returns the workspace's own directory."""
    session = api.plane.sessions.registry.live[0]
    assert session.sandbox is not None
    path = session.sandbox.directory.workspace / name
    path.write_text(text)
    path.chmod(0o644)
    os.chown(path, session.workspace.uid, session.workspace.uid)
    return Path(session.root_dir)


async def test_they_are_listed_committed_and_discarded(api: Api) -> None:
    created = await api.session(id="box", policy=POLICY)
    handle = created["handle"]
    data = stage(api, "a", "one\n")
    page = await api.json("GET", URL, key=handle)
    (item,) = page["items"]
    assert item["diff"] == "--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+one\n"
    assert (item["type"], item["mode"], item["old_mode"]) == ("write", "0644", None)
    assert (page["next"], page["truncated"], page["counts"]["write"]) == (None, False, 1)
    await api.problem(403, "permission_denied", "POST", f"{URL}/commit", key=handle, json={})
    assert list(data.iterdir()) == []
    seen = {"fingerprint": item["fingerprint"], "mode": "0644"}
    wrong = {"fingerprint": "sha256:" + "0" * 64, "mode": "0644"}
    problem = await api.problem(
        409, "conflict", "POST", f"{URL}/commit", json={"expected": {"a": wrong}}
    )
    assert problem["conflicts"] == [
        {"ref": "a", "expected": wrong["fingerprint"], "actual": item["fingerprint"]}
    ]
    assert list(data.iterdir()) == []
    done = await api.json("POST", f"{URL}/commit", json={"expected": {"a": seen}})
    assert done == {"write": 1, "delete": 0, "paths": ["a"]}
    assert (data / "a").read_text() == "one\n"
    # Its next use gives it a sandbox again, in which nothing is staged.
    await api.json("POST", "/api/sessions/box/exec", json={"argv": ["pwd"]})
    stage(api, "a", "two\n")
    assert await api.json("POST", f"{URL}/rollback", key=handle) == {
        **{"write": 1, "delete": 0},
        "refused": 0,
    }
    assert (await api.json("GET", URL))["items"] == []
    assert (data / "a").read_text() == "one\n"
    assert await api.json("POST", f"{URL}/commit", json={}) == {**NOTHING, "paths": []}


async def test_a_turn_discards_what_is_staged(api: Api) -> None:
    policy = {**POLICY, "allowed_operations": ["world.read", "world.write", "subeval", "eval"]}
    await api.session(id="box", policy={**policy, "execution_rules": {"allow_subeval": True}})
    session = api.plane.sessions.registry.live[0]
    api.agent.files["README.md"] = b"hello"

    async def run(code: str) -> dict[str, Any]:
        answer = await api.json("POST", "/api/sessions/box/turns", json={"code": code})
        assert isinstance(answer, dict)
        return answer

    stage(api, "a", "one\n")
    nested = '(subeval "(session/rollback-proposals!)" \'((allow world.read)))'
    refused = (await run(nested))["outcome"]
    assert "within subeval" in refused["message"]
    first = session.sandbox
    turn = await run(
        '(world.write "b" "x")'
        " (list (session/rollback-proposals!) (session/proposals)"
        ' (string-length (world.read "README.md")) (session/rollback-proposals!))'
    )
    assert (turn["outcome"]["tag"], turn["outcome"]["value"]) == ("ok", [1, [], 5, 0])
    assert turn["proposals"] == []
    # What follows has a new sandbox; what discards nothing keeps it.
    assert session.sandbox is not None
    assert session.sandbox is not first
    (event,) = (await api.json("GET", "/api/sessions/box/audit?turn=2"))["items"][2:3]
    assert (event["operation"], event["args"]["write"]) == ("proposal.rollback", 1)
    # Another use of the session is in the way, and nothing is discarded.
    stage(api, "c", "two\n")
    with session.using():
        busy = (await run("(session/rollback-proposals!)"))["outcome"]
    assert (busy["tag"], busy["error_type"]) == ("error", "runtime-error")
    assert [each["ref"] for each in (await api.json("GET", URL))["items"]] == ["c"]
    assert (await run("(session/rollback-proposals!)"))["outcome"]["value"] == 1
    assert (await api.json("GET", URL))["items"] == []
    assert session.suspended


async def test_an_interrupted_turn_finishes_its_rollback(api: Api) -> None:
    await api.session(id="box", policy=POLICY)
    session = api.plane.sessions.registry.live[0]
    stage(api, "a", "one\n")
    removing = api.engine.hang_next("remove")
    body = {"code": "(session/rollback-proposals!)"}
    running = asyncio.create_task(api.json("POST", "/api/sessions/box/turns", json=body))
    async with asyncio.timeout(WAIT_SECONDS):
        await until(lambda: "remove" in api.engine.calls)
        assert session.suspension is Suspension.BEGINNING
        await api.json("POST", "/api/sessions/box/interrupt")
        assert (await running)["outcome"]["error_type"] == "interrupted"
        removing.set()
        again = await api.json(
            "POST", "/api/sessions/box/turns", json={"code": "(session/proposals)"}
        )
    assert (again["outcome"]["tag"], again["outcome"]["value"]) == ("ok", [])


async def test_bad_input_and_sessions_that_stage_nothing(api: Api) -> None:
    await api.session(id="box")
    assert (await api.json("GET", URL))["items"] == []
    assert await api.json("POST", f"{URL}/commit", json={}) == {**NOTHING, "paths": []}
    assert await api.json("POST", f"{URL}/rollback") == {**NOTHING, "refused": 0}
    assert not api.plane.sessions.registry.live[0].suspended
    await api.json("DELETE", "/api/sessions/box")
    await api.session(id="box", policy=POLICY)
    stage(api, "a", "one\n")
    for body, field in (
        ({"paths": []}, "paths"),
        ({"paths": [""]}, "paths"),
        ({"paths": ["b"]}, "paths"),
        ({"paths": ["../a"]}, "paths"),
        ({"expected": {}}, "expected"),
        ({"expected": {"a": {"mode": "rw"}}}, "expected"),
        ({"everything": True}, "everything"),
    ):
        problem = await api.problem(400, "validation_error", "POST", f"{URL}/commit", json=body)
        assert field in problem["field"], (body, problem)
    for query in ("?limit=0", "?limit=1001", "?after=" + "x" * 5000):
        await api.problem(400, "validation_error", "GET", URL + query)
    await api.json("POST", "/api/sessions/box/pause")
    await api.problem(409, "invalid_transition", "POST", f"{URL}/commit", json={})
    await api.json("DELETE", "/api/sessions/box")
    await api.problem(410, "session_terminated", "GET", URL, key=ADMIN_KEY)


async def test_the_client_and_the_command_line(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    url = str(api.server.make_url("/"))
    data = stage_in(await api.session(id="box", policy=POLICY), api)
    monkeypatch.setenv("PADDOCK_URL", url)
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    async with Paddock(url, ADMIN_KEY) as paddock:
        session = await paddock.sessions.get("box")
        page = await session.proposals.list(limit=1)
        assert ([item.ref for item in page.items], page.next) == (["a"], "a")
        shown = await run_beside("proposals", "show", "box")
        assert "+one" in shown.out
        assert await run_beside("proposals", "box") == shown
        assert (await session.proposals.commit(expected=page.items)).paths == ["a"]
        assert [path.name for path in data.iterdir()] == ["a"]
        told = await run_beside("proposals", "commit", "box", "b", "--json")
        assert json.loads(told.out)["paths"] == ["b"]
        told = await run_beside("proposals", "rollback", "box", "--json")
        assert json.loads(told.out)["write"] == 0
        told = await run_beside("proposals", "box", "commit", "--json")
        assert json.loads(told.out)["paths"] == []
        assert (await session.proposals.rollback()).write == 0


def stage_in(_created: dict[str, Any], api: Api) -> Path:
    """Two staged files."""
    stage(api, "b", "two\n")
    return stage(api, "a", "one\n")
