"""Sessions with context packs over HTTP: opened, read, missed, refined."""

import asyncio
import hashlib
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.control_plane import ControlPlane
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.host.node.requirements import Facts
from orchestrator.settings.settings import Settings
from sandbox_agent.decide.facilities import without
from tests.api.conftest import Api, served
from tests.support.fake_agent import Agents
from tests.support.limits import WAIT_SECONDS
from tests.support.restart import reopened

FILES = {"src/main.py": b"print()\n", "src/secret.py": b"canary", "notes": b"read me\n"}
REQUEST = "coordination.context_refinement_request"


def content_hash(path: str) -> str:
    return f"sha256:{hashlib.sha256(FILES[path]).hexdigest()}"


def pack(*paths: str, **members: Any) -> dict[str, Any]:
    entries = [{"path": path, "content_hash": content_hash(path)} for path in paths]
    tools = ["Read", "ListFiles", "Execute", "Write"]
    return {"manifest_id": "fix", "entries": entries, "tool_allowlist": tools, **members}


async def opened(api: Api, *paths: str, **members: Any) -> dict[str, Any]:
    api.agents.files.update(FILES)
    consume = pack(*paths, **members.pop("consume", {}))
    return await api.session(permission_level="medium", consume=consume, **members)


async def operations(api: Api, session_id: str) -> list[dict[str, Any]]:
    path = f"/api/sessions/{session_id}/audit"
    found: list[dict[str, Any]] = (await api.json("GET", path))["items"]
    return found


async def ended(api: Api, session_id: str) -> dict[str, Any]:
    session = api.plane.sessions.registry.get(session_id)
    assert session is not None
    async with asyncio.timeout(WAIT_SECONDS):
        await session.over
        async with session.lock:
            pass
    return await api.json("GET", f"/api/sessions/{session_id}")


async def missed(api: Api, session_id: str, path: str = "src/secret.py") -> dict[str, Any]:
    url = f"/api/sessions/{session_id}/reads"
    return await api.problem(403, "permission_denied", "POST", url, json={"path": path})


async def test_a_pack_is_refused_where_reads_could_be_disturbed(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await api.plane.node.facts()

    async def facts() -> Facts:
        return replace(found, kernel=without(found.kernel, ["undisturbed"]))

    monkeypatch.setattr(api.plane.node, "facts", facts)
    api.agents.files.update(FILES)
    body = {"id": "web", "permission_level": "medium", "consume": pack("notes")}
    problem = await api.problem(503, "engine_unavailable", "POST", "/api/sessions", json=body)
    assert problem["detail"] == (
        "level medium can't be enforced on this host: needs a kernel of 5.19 or later for a pack: "
        "no signal disturbs its reads"
    )
    assert api.engine.containers == {}
    assert (await api.json("GET", "/api/sessions"))["items"] == []
    await api.session(id="web", permission_level="medium")  # without a pack


async def test_a_session_is_opened_with_its_pack(api: Api) -> None:
    session = await opened(api, "notes", work_id="w-1", id="web")
    assert session["consume"] == {
        "manifest_id": "fix",
        "manifest_hash": session["consume"]["manifest_hash"],
        "mode": "hard_fail",
        "refinement_count": 0,
    }
    assert session["work_id"] == "w-1"
    configuration = api.agent.configuration
    assert configuration is not None
    assert configuration["egress"] is False
    assert configuration["consume"]["entries"] == ["notes"]
    assert configuration["consume"]["directories"] == ["."]
    found = await api.json("GET", "/api/sessions?work_id=w-1")
    assert [item["id"] for item in found["items"]] == ["web"]
    assert (await api.json("GET", "/api/sessions?work_id=w-2"))["items"] == []
    (created, *_) = await operations(api, "web")
    assert created["args"]["manifest_hash"] == session["consume"]["manifest_hash"]
    # A pack is no widening: what the level denies stays denied.
    problem = await api.problem(
        403, "permission_denied", "POST", "/api/sessions/web/exec", json={"command": "bash"}
    )
    assert problem["rule"] == "command-allowlist"
    denied = {"command": "ls", "cwd": "."}
    problem = await api.problem(
        403, "permission_denied", "POST", "/api/sessions/web/exec", json=denied
    )
    assert problem["rule"] == "CTX-SHELL-001"


async def test_a_mismatch_leaves_nothing(api: Api) -> None:
    api.agents.files["notes"] = b"changed"
    body: dict[str, Any] = {"id": "web", "consume": pack("notes", "src/main.py")}
    problem = await api.problem(409, "conflict", "POST", "/api/sessions", json=body)
    assert problem["paths"] == ["/workspace/notes", "/workspace/src/main.py"]
    assert (await api.json("GET", "/api/sessions"))["items"] == []
    assert api.engine.containers == {}
    assert api.plane.sessions.registry.usage("admin").sessions == 0
    body["consume"]["entries"][0]["path"] = "/etc/passwd"
    problem = await api.problem(400, "validation_error", "POST", "/api/sessions", json=body)
    assert problem["field"] == "consume.entries.0.path"
    others: tuple[dict[str, Any], ...] = ({"mounts": ["data"]}, {"egress": {"allow": []}})
    for members in others:
        refused = {"permission_level": "medium", "consume": pack("notes"), **members}
        await api.problem(400, "validation_error", "POST", "/api/sessions", json=refused)


async def test_files_of_the_pack_are_read(api: Api) -> None:
    await opened(api, "notes", id="web", consume={"mode": "soft_fail"})
    answer = await api.call("POST", "/api/sessions/web/reads", json={"path": "./notes"})
    assert (answer.status, await answer.read()) == (200, b"read me\n")
    assert answer.headers["ETag"] == f'"{content_hash("notes")}"'
    answer = await api.call("GET", "/api/sessions/web/files?path=notes")
    assert await answer.read() == b"read me\n"
    wrong = {"path": "notes", "hash": content_hash("src/main.py")}
    problem = await api.problem(
        403, "permission_denied", "POST", "/api/sessions/web/reads", json=wrong
    )
    assert problem["rule"] == "CTX-HASH-MISMATCH-001"
    for url in (
        "/api/sessions/web/files?path=src/secret.py",
        "/api/sessions/web/files?path=/etc/x",
    ):
        problem = await api.problem(403, "permission_denied", "GET", url)
        assert problem["rule"] == "CTX-ALLOWLIST-001"
    problem = await api.problem(
        400, "validation_error", "POST", "/api/sessions/web/reads", json={"path": "../../x"}
    )
    assert problem["field"] == "path"
    denials = [event for event in await operations(api, "web") if event["decision"] == "deny"]
    assert [event["rule"] for event in denials] == [
        "CTX-HASH-MISMATCH-001",
        "CTX-ALLOWLIST-001",
        "CTX-ALLOWLIST-001",
        "CTX-PATH-001",
    ]
    assert (await api.json("GET", "/api/sessions/web"))["status"] == "active"


async def test_a_session_without_a_pack_has_no_reads(api: Api) -> None:
    await api.session(id="web")
    await api.problem(409, "conflict", "POST", "/api/sessions/web/reads", json={"path": "a"})
    await api.problem(404, "not_found", "GET", "/api/sessions/web/consume")
    body = {"consume": pack()}
    await api.problem(404, "not_found", "POST", "/api/sessions/web/refine", json=body)


async def test_a_miss_ends_the_session_in_order(api: Api) -> None:
    session = await opened(api, "notes", id="web", work_id="w-1")
    problem = await missed(api, "web")
    assert (problem["rule"], problem["path"]) == ("CTX-ALLOWLIST-001", "/workspace/src/secret.py")
    shown = await api.json("GET", "/api/sessions/web")
    assert shown["status"] == "aborted"
    assert shown["termination"]["rationale_code"] == "CONTEXT_MISS"
    assert shown["termination"]["exit_classification"] == "FAILURE"
    deny, terminated, request = (await operations(api, "web"))[-3:]
    assert (deny["operation"], deny["decision"]) == ("read", "deny")
    assert deny["args"] == {"path": "/workspace/src/secret.py", "manifest_id": "fix"}
    assert terminated["operation"] == "session.terminated"
    assert "ContextMiss" in terminated["error"]
    assert request["operation"] == REQUEST
    assert {**request["args"], "timestamp_ns": 0} == {
        "work_id": "w-1",
        "manifest_id": "fix",
        "missed_path": "/workspace/src/secret.py",
        "rationale_code": "CONTEXT_MISS",
        "refinement_count": 0,
        "timestamp_ns": 0,
    }
    gone = await api.problem(
        410, "session_terminated", "POST", "/api/sessions/web/reads", json={"path": "notes"}
    )
    assert gone["rationale"] == "CONTEXT_MISS"
    url = "/api/sessions/web/reads"
    await api.problem(
        401, "unauthorized", "POST", url, json={"path": "notes"}, key=session["handle"]
    )


@pytest.mark.slow
async def test_a_pack_is_refined_until_a_person_is_needed(api: Api) -> None:
    await opened(api, "notes", id="web", labels={"a": "b"}, limits={"pids": 32}, tools=[])
    work_id = (await api.json("GET", "/api/sessions/web"))["work_id"]
    refine = {"consume": pack("notes", "src/main.py")}
    await api.problem(409, "conflict", "POST", "/api/sessions/web/refine", json=refine)
    for count in range(1, 11):
        await missed(api, "web")
        state = await api.json("GET", "/api/sessions/web/consume")
        assert [miss["path"] for miss in state["misses"]] == ["/workspace/src/secret.py"]
        assert state["refinement_count"] == count - 1
        session = await api.json("POST", "/api/sessions/web/refine", json=refine, status=201)
        assert session["consume"]["refinement_count"] == count
        assert (session["work_id"], session["labels"]) == (work_id, {"a": "b"})
        assert (session["permission_level"], session["limits"]["pids"]) == ("medium", 32)
        assert session["tools"] == []
    assert [entry["path"] for entry in state["pack"]["entries"]]
    # One pack is kept, whatever the number of sessions.
    assert await _packs(api) == 1
    await missed(api, "web")
    last = (await operations(api, "web"))[-1]
    assert last["operation"] == "session.terminated"  # and no request
    assert "MaxRefinementsExceeded" in last["error"]
    await api.problem(
        409, "max_refinements_exceeded", "POST", "/api/sessions/web/refine", json=refine
    )
    # Neither does another session of the same work begin at zero.
    body = {"work_id": work_id, "consume": pack("notes")}
    await api.problem(409, "max_refinements_exceeded", "POST", "/api/sessions", json=body)


async def test_a_refinement_that_fails_leaves_what_is_refined(api: Api) -> None:
    await opened(api, "notes", id="web")
    await missed(api, "web")
    before = await api.json("GET", "/api/sessions/web/consume")
    path = "/api/sessions/web/refine"
    del api.agents.files["src/main.py"]
    refine = {"consume": pack("notes", "src/main.py")}
    await api.problem(409, "conflict", "POST", path, json=refine)
    assert await api.json("GET", "/api/sessions/web/consume") == before
    api.agents.files.update(FILES)
    await api.json("POST", path, json=refine, status=201)
    assert await _packs(api) == 1


async def test_what_the_agent_detects_ends_the_session(api: Api) -> None:
    for mode, ends in (("soft_fail", False), ("hard_fail", True)):
        await opened(api, "notes", id=mode.replace("_", "-"), consume={"mode": mode})
        name = mode.replace("_", "-")
        args = {"path": "/workspace/src/secret.py", "program": "/bin/cat", "manifest_id": "fix"}
        api.agent.emit("read", decision="deny", rule="CTX-ALLOWLIST-001", args=args)
        if ends:
            shown = await ended(api, name)
            assert shown["termination"]["rationale_code"] == "CONTEXT_MISS"
            (miss,) = (await api.json("GET", f"/api/sessions/{name}/consume"))["misses"]
            assert (miss["path"], miss["program"]) == (args["path"], args["program"])
            assert (await operations(api, name))[-1]["operation"] == REQUEST
        else:
            assert (await api.json("GET", f"/api/sessions/{name}"))["status"] == "active"


async def test_a_miss_that_was_recorded_is_carried_out_after_a_kill(
    settings: Settings, engine: FakeEngine, agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = await ControlPlane.open(settings, engine)
    async with served(plane, engine, agents) as api:
        await opened(api, "notes", id="web")
        session = plane.sessions.registry.get("web")
        assert session is not None
        # As if the control plane were killed right after the denial was recorded.
        monkeypatch.setattr(plane.sessions, "miss", _never)
        await missed(api, "web")
        assert session.live
    await plane.close()
    plane = await reopened(settings, engine, agents)
    async with served(plane, engine, agents) as api:
        shown = await ended(api, "web")
        assert shown["termination"]["rationale_code"] == "CONTEXT_MISS"
        assert (await operations(api, "web"))[-1]["operation"] == REQUEST
    await plane.close()


async def _packs(api: Api) -> int:
    """How many packs are stored."""
    ((count,),) = await api.plane.database.read(
        lambda connection: connection.execute("SELECT count(*) FROM packs").fetchall()
    )
    return int(count)


async def test_a_pack_is_kept_as_long_as_it_is_needed(api: Api) -> None:
    await opened(api, "notes", id="web")
    await opened(api, "notes", id="other")
    assert await _packs(api) == 2
    await api.json("DELETE", "/api/sessions/other")
    assert await _packs(api) == 1
    assert (await api.json("GET", "/api/sessions/other/consume"))["pack"]["entries"] == []
    await missed(api, "web")
    assert await _packs(api) == 1
    await api.json("DELETE", "/api/sessions/web?purge=true")
    assert await _packs(api) == 0


async def _never(*_arguments: Any) -> None:
    """Ends nothing."""
