"""Children of sessions: what they get, what they may not, and that they end with their parents."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from orchestrator.rules.access.keys import KeyRing
from orchestrator.state import family as state
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, OTHER_KEY, Api
from tests.api.test_packs import opened as with_pack
from tests.support.fake_agent import Play
from tests.support.until import until

SESSIONS = "/api/sessions"
POLICY = {
    "allowed_operations": ["world.read", "world.list", "world.write", "llm.complete", "spawn"],
    "denied_operations": [],
    "world_rules": {"write_patterns": ["src/**"], "read_only": False, "proposal_mode": False},
}


async def root(api: Api, **body: Any) -> str:
    """The path of a new session."""
    made = await api.session(**{"key": OPERATOR_KEY, "policy": POLICY, **body})
    return f"{SESSIONS}/{made['id']}"


async def spawned(api: Api, path: str, **body: Any) -> dict[str, Any]:
    return await api.json("POST", f"{path}/spawn", json=body, key=OPERATOR_KEY, status=201)


async def events(api: Api, path: str, operation: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await api.json("GET", f"{path}/audit?operation={operation}"))[
        "items"
    ]
    return items


def path_of(session: dict[str, Any]) -> str:
    return f"{SESSIONS}/{session['id']}"


async def test_a_child_has_what_its_parent_has_and_belongs_to_it(api: Api) -> None:
    path = await root(api, permission_level="low", role="tester", tools=["psql"])
    child = await spawned(api, path, label="reader")
    parent = await api.json("GET", path)
    assert child["handle"].startswith("H-")
    assert (child["parent"], child["depth"], child["children"]) == (parent["id"], 1, [])
    assert child["spawn"]["label"] == "reader"
    assert (parent["parent"], parent["depth"], parent["spawn"]) == (None, 0, None)
    assert parent["children"] == [child["id"]]
    for name in ("owner", "permission_level", "role", "tools", "limits", "idle_action"):
        assert child[name] == parent[name], name
    assert child["policy"]["sha256"] == parent["policy"]["sha256"]
    assert child["workspace"]["root_dir"] != parent["workspace"]["root_dir"]
    # It is an ordinary session, which its handle may use and its parent's may not.
    path_of_child = path_of(child)
    assert (await api.json("GET", path_of_child, key=child["handle"]))["id"] == child["id"]
    await api.problem(404, "not_found", "GET", path_of_child, key=OTHER_KEY)


async def test_lists_have_roots_or_the_children_of_one(api: Api) -> None:
    path = await root(api)
    child = await spawned(api, path)
    grandchild = await spawned(api, path_of(child))

    async def listed(query: str) -> list[str]:
        found = await api.json("GET", f"{SESSIONS}?{query}", key=OPERATOR_KEY)
        return [each["id"] for each in found["items"]]

    parent = path.rsplit("/", 1)[1]
    assert await listed("") == [parent]
    assert await listed(f"parent={parent}") == [child["id"]]
    assert await listed(f"parent={child['id']}") == [grandchild["id"]]
    await api.json("DELETE", path)
    assert await listed("status=ended") == [parent]
    assert await listed(f"status=ended&parent={parent}") == [child["id"]]
    await api.problem(404, "not_found", "GET", f"{SESSIONS}?parent=unknown", key=OPERATOR_KEY)
    await api.problem(404, "not_found", "GET", f"{SESSIONS}?parent={parent}", key=OTHER_KEY)


async def test_it_is_on_record_in_the_parent_before_it_exists_and_at_its_end(api: Api) -> None:
    path = await root(api)
    child = await spawned(api, path, label="reader", permission_level="low")
    (begun,) = await events(api, path, "session.spawn")
    told = {name: begun["args"][name] for name in ("label", "permission_level", "workspace")}
    assert told == {"label": "reader", "permission_level": "low", "workspace": "own"}
    assert begun["args"]["child_session_id"] == child["id"]
    assert begun["args"]["spawn_id"] == child["spawn"]["spawn_id"]
    (created,) = await events(api, path_of(child), "session.create")
    assert begun["time"] <= created["time"]
    assert created["args"]["parent"] == path.rsplit("/", 1)[1]
    assert await events(api, path, "session.spawn_end") == []
    await api.json("DELETE", path_of(child))
    await api.json("DELETE", path_of(child))
    (ended,) = await events(api, path, "session.spawn_end")
    assert ended["args"]["spawn_id"] == child["spawn"]["spawn_id"]
    assert (ended["result"], ended["error"]) == ({"is_error": False}, None)
    assert (await api.json("GET", path))["children"] == []


async def test_only_a_key_of_the_owner_or_an_admin_s_may_spawn(api: Api) -> None:
    made = await api.session(key=OPERATOR_KEY)
    path = path_of(made)
    await api.problem(
        403, "permission_denied", "POST", f"{path}/spawn", json={}, key=made["handle"]
    )
    await api.problem(404, "not_found", "POST", f"{path}/spawn", json={}, key=OTHER_KEY)
    child = await api.json("POST", f"{path}/spawn", json={}, key=ADMIN_KEY, status=201)
    assert child["owner"] == "operator"


async def test_what_is_above_the_parent_s_is_refused_and_changes_nothing(
    api: Api, subtests: pytest.Subtests
) -> None:
    path = await root(api, permission_level="low", budget={"commands": 10, "tokens": 100})
    before = await api.json("GET", f"{path}/audit")
    for case, field, body in (
        (403, "permission_level", {"permission_level": "medium"}),
        (403, "policy", {"policy": {**POLICY, "allowed_operations": ["world.search"]}}),
        (403, "policy", {"policy": {**POLICY, "llm_rules": {"max_tokens_per_call": 5000}}}),
        (403, "policy", {"policy": {**POLICY, "world_rules": {"read_patterns": [".env"]}}}),
        (400, "budget.commands", {"budget": {"commands": 11}}),
        (400, "budget.tokens", {"budget": {"tokens": 101}}),
        (400, "permission_level", {"permission_level": "unknown"}),
        (400, "policy", {"policy": "UNKNOWN"}),
        (400, "workspace", {"workspace": "overlay"}),
        (400, "label", {"label": ""}),
        (400, "label", {"label": "x" * 129}),
        (400, "idle_timeout", {"idle_timeout": 0}),
        (400, "max_ticks", {"max_ticks": 0, "messages": [{"content": "go"}]}),
        (400, "model", {"model": "none", "messages": [{"content": "go"}]}),
        (400, "messages", {"messages": []}),
        (400, None, {"model": "small"}),
        (400, None, {"image": "other"}),
    ):
        with subtests.test(str(body)):
            code = "permission_denied" if case == 403 else "validation_error"
            problem = await api.problem(
                case, code, "POST", f"{path}/spawn", json=body, key=OPERATOR_KEY
            )
            assert field in (None, problem.get("field"))
            assert case == 400 or problem["rule"].startswith("parent-")
    assert await api.json("GET", f"{path}/audit") == before
    parent = await api.json("GET", path)
    assert (parent["children"], parent["budget"]["remaining"]["commands"]) == ([], 10)
    assert len(api.plane.sessions.registry) == 1


async def test_ten_levels_and_no_more(api: Api) -> None:
    path = top = await root(api)
    for depth in range(1, state.MAX_DEPTH + 1):
        child = await spawned(api, path)
        assert child["depth"] == depth
        path = path_of(child)
    problem = await api.problem(409, "conflict", "POST", f"{path}/spawn", json={}, key=OPERATOR_KEY)
    assert problem["detail"] == "Maximum spawn depth (10) exceeded"
    await api.json("DELETE", top)
    assert len(api.plane.sessions.registry) == 0
    assert api.engine.containers == {}


async def test_children_are_counted(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MAX_CHILDREN", 2)
    path = await root(api)
    answers = await asyncio.gather(
        *(api.call("POST", f"{path}/spawn", json={}, key=OPERATOR_KEY) for _ in range(4))
    )
    assert sorted(answer.status for answer in answers) == [201, 201, 409, 409]
    (child, _) = (await api.json("GET", path))["children"]
    await api.json("DELETE", f"{SESSIONS}/{child}")
    await spawned(api, path)


async def test_all_descendants_end_with_a_session(api: Api) -> None:
    for method, action, status in (
        ("DELETE", "", "completed"),
        ("POST", "/complete", "completed"),
        ("POST", "/abort", "aborted"),
    ):
        path = await root(api)
        first, second = await spawned(api, path), await spawned(api, path)
        below = await spawned(api, path_of(first))
        api.agent.plays["cat"] = Play(holds=True)
        await api.json(
            "POST",
            f"{path_of(below)}/exec",
            json={"argv": ["cat"], "background": True},
            status=202,
        )
        ended = await api.json(method, path + action, json={} if action else None)
        assert (ended["status"], ended["children"]) == (status, [])
        for child in (first, second, below):
            shown = await api.json("GET", path_of(child))
            assert (shown["status"], shown["sandbox"]) == (status, None)
            last = await api.json("GET", f"{path_of(child)}/audit?operation=session.terminated")
            assert len(last["items"]) == 1
        ends = await events(api, path, "session.spawn_end")
        assert len(ends) == 2
        assert {end["error"] for end in ends} == {"the parent has ended"}
        operations = [e["operation"] for e in (await api.json("GET", f"{path}/audit"))["items"]]
        assert operations[-1] == "session.terminated"
        await api.problem(410, "session_terminated", "POST", f"{path}/spawn", json={})
    assert api.engine.containers == {}


async def test_whatever_ends_a_session_ends_its_children(api: Api) -> None:
    path = await root(api, budget={"commands": 3})
    spent = await spawned(api, path)
    await api.json("POST", f"{path}/exec", json={"argv": ["ls"]})
    await api.json("POST", f"{path}/exec", json={"argv": ["ls"]})
    # One command is reserved.
    await api.problem(429, "budget_exceeded", "POST", f"{path}/exec", json={"argv": ["ls"]})
    assert (await api.json("GET", path))["status"] == "budget-exceeded"
    crashed = await root(api)
    left = await spawned(api, crashed)
    parent = api.plane.sessions.registry.get(crashed.rsplit("/", 1)[1])
    assert parent is not None
    assert parent.sandbox is not None
    await api.engine.die(parent.sandbox.container_id)
    child = api.plane.sessions.registry.get(left["id"])
    assert child is not None
    await until(lambda: child.family.parent is None)
    assert (await api.json("GET", crashed))["termination"]["rationale_code"] == "crash"
    for each in (spent, left):
        (ended,) = await events(api, path_of(each), "session.terminated")
        assert (ended["result"]["status"], ended["error"]) == ("aborted", "its parent has ended")
    assert api.engine.containers == {}


async def test_what_is_interrupted_in_a_session_is_interrupted_below_it(api: Api) -> None:
    path = await root(api)
    child = path_of(await spawned(api, path))
    api.agent.plays["cat"] = Play(holds=True)
    running = asyncio.create_task(api.json("POST", f"{child}/exec", json={"argv": ["cat"]}))
    session = api.plane.sessions.registry.get(child.rsplit("/", 1)[1])
    assert session is not None
    await until(lambda: any(command.dispatched for command in session.running))
    await api.json("POST", f"{path}/interrupt", json={})
    assert (await running)["reason"] == "interrupted"
    assert (await api.json("GET", child))["status"] == "active"


async def test_a_child_s_end_is_its_own(api: Api) -> None:
    path = await root(api)
    child = await spawned(api, path, budget={"commands": 1})
    await api.json("POST", f"{path_of(child)}/exec", json={"argv": ["ls"]})
    await api.problem(
        429, "budget_exceeded", "POST", f"{path_of(child)}/exec", json={"argv": ["ls"]}
    )
    parent = await api.json("GET", path)
    assert (parent["status"], parent["children"]) == ("active", [])
    (end,) = await events(api, path, "session.spawn_end")
    assert end["result"] == {"is_error": True}
    assert "commands" in end["error"]


async def test_closing_with_purge_removes_the_workspaces_of_children(api: Api) -> None:
    path = await root(api)
    child = await spawned(api, path)
    grandchild = await spawned(api, path_of(child))
    roots = [shown["workspace"]["root_dir"] for shown in (child, grandchild)]
    assert all(Path(place).is_dir() for place in roots)
    await api.json("DELETE", f"{path}?purge=true")
    assert not any(Path(place).is_dir() for place in roots)


async def test_budgets_are_reserved_spent_and_given_back(api: Api) -> None:
    path = await root(api, budget={"commands": 100, "tokens": 10, "time": 1000})

    async def left(kind: str = "commands") -> tuple[int, int]:
        budget = await api.json("GET", f"{path}/budget")
        return budget["consumed"][kind], budget["remaining"][kind]

    child = await spawned(api, path, budget={"commands": 30})
    assert child["budget"]["limits"]["commands"] == 30
    # Without a limit of its own: half of what is left, and all of the time.
    assert child["budget"]["limits"]["tokens"] == 5
    assert 990 < child["budget"]["limits"]["time"] <= 1000
    assert await left() == (0, 70)
    grandchild = await spawned(api, path_of(child), budget={"commands": 20})
    assert await left() == (0, 70)
    for each_path in (path, path_of(child), path_of(grandchild)):
        await api.json("POST", f"{each_path}/exec", json={"argv": ["ls"]})
    assert await left() == (3, 69)
    await api.json("DELETE", path_of(grandchild))
    assert await left() == (3, 69)
    await api.json("DELETE", path_of(child))
    assert await left() == (3, 97)
    assert await left("tokens") == (0, 10)
    await spawned(api, path, budget={"tokens": 10})
    problem = await api.problem(409, "conflict", "POST", f"{path}/spawn", json={}, key=OPERATOR_KEY)
    assert "tokens" in problem["detail"]


async def test_what_could_not_be_created_reserves_nothing(api: Api) -> None:
    path = await root(api, budget={"commands": 100})
    api.engine.fail_next("create")
    answer = await api.call("POST", f"{path}/spawn", json={}, key=OPERATOR_KEY)
    assert answer.status >= 400
    parent = await api.json("GET", path)
    assert (parent["children"], parent["budget"]["remaining"]["commands"]) == ([], 100)
    assert len(await events(api, path, "session.spawn")) == 1
    (end,) = await events(api, path, "session.spawn_end")
    assert end["error"].startswith("the child could not be created")


async def test_a_lower_level_ends_the_children_above_it(api: Api) -> None:
    path = await root(api, permission_level="high")
    high = await spawned(api, path)
    low = await spawned(api, path, permission_level="low")
    body = {"settings": {"permission_level": "medium"}}
    await api.json("PUT", f"{path}/settings", json=body)
    assert (await api.json("GET", path))["children"] == [low["id"]]
    assert (await api.json("GET", path_of(high)))["status"] == "aborted"
    (ended,) = await events(api, path_of(high), "session.terminated")
    assert ended["error"] == "the level of its parent is medium now"


async def test_a_child_s_level_is_never_raised_above_its_parent_s(api: Api) -> None:
    path = await root(api, permission_level="medium")
    child = path_of(await spawned(api, path, permission_level="low"))
    high, medium = ({"settings": {"permission_level": name}} for name in ("high", "medium"))
    problem = await api.problem(403, "permission_denied", "PUT", f"{child}/settings", json=high)
    assert problem["rule"] == "parent-level"
    body = {"messages": [{"content": "go"}], "permission_level": "high"}
    await api.problem(403, "permission_denied", "POST", f"{child}/send", json=body)
    assert (await api.json("GET", child))["permission_level"] == "low"
    refused = await api.json("GET", f"{child}/audit?decision=deny")
    assert refused["items"][0]["rule"] == "parent-level"
    await api.json("PUT", f"{child}/settings", json=medium)
    assert (await api.json("GET", child))["permission_level"] == "medium"


async def test_sessions_of_a_key_that_is_gone_do_not_spawn(api: Api) -> None:
    path = await root(api)
    ring = api.plane.keys
    ring.replace(KeyRing({known.sha256: known for known in ring.all if known.name == "admin"}))
    problem = await api.problem(409, "conflict", "POST", f"{path}/spawn", json={})
    assert "the key of the session is not valid" in problem["detail"]


async def test_a_parent_is_not_idle_while_a_child_is_used(api: Api) -> None:
    path = await root(api)
    child = await spawned(api, path)
    sessions = api.plane.sessions
    parent = sessions.registry.get(path.rsplit("/", 1)[1])
    below = sessions.registry.get(child["id"])
    assert parent is not None
    assert below is not None
    assert not parent.in_use
    with below.using():
        assert parent.in_use
        assert (await api.json("GET", path))["deadlines"]["idle_at"] is None
    below.last_activity_at = "2999-01-01T00:00:00.000000Z"
    assert (await api.json("GET", path))["deadlines"]["idle_at"].startswith("2999")
    below.last_activity_at = child["created_at"]
    # Each is suspended on its own.
    assert await sessions.suspensions.suspend(parent, "room")
    assert parent.suspended
    assert not below.suspended
    await api.json("POST", f"{path_of(child)}/exec", json={"argv": ["ls"]})
    await spawned(api, path)
    assert await sessions.suspensions.suspend(below, "room")


async def test_a_read_only_child_has_its_parent_s_workspace(api: Api) -> None:
    path = await root(api)
    child = await spawned(api, path, workspace="read-only")
    parent = await api.json("GET", path)
    assert child["workspace"] == parent["workspace"]
    assert child["spawn"]["workspace"] == "read-only"
    rules = (await api.json("GET", path_of(child)))["policy"]["world_rules"]
    assert (rules["read_only"], rules["proposal_mode"]) == (True, False)
    own = api.plane.sessions.registry.get(child["id"])
    above = api.plane.sessions.registry.get(parent["id"])
    assert own is not None
    assert above is not None
    assert own.workspace == above.workspace
    # Each is suspended on its own, and comes back.
    assert await api.plane.sessions.suspensions.suspend(above, "room")
    below = await spawned(api, path_of(child), workspace="read-only")
    assert below["workspace"] == parent["workspace"]
    snapshot = f"{path_of(below)}/snapshot"
    await api.problem(409, "conflict", "POST", snapshot, json={}, key=OPERATOR_KEY)
    await api.json("POST", f"{path}/exec", json={"argv": ["ls"]})
    assert await api.plane.sessions.suspensions.suspend(own, "room")
    await api.json("POST", f"{path_of(child)}/exec", json={"argv": ["ls"]})
    # Another level may give the workspace another size.
    await api.json("PUT", f"{path}/settings", json={"settings": {"permission_level": "high"}})
    assert (await api.json("GET", path))["children"] == []
    # Its end leaves the workspace.
    other = await spawned(api, path, workspace="read-only")
    await api.json("DELETE", f"{path_of(other)}?purge=true")
    await api.json("POST", f"{path}/exec", json={"argv": ["ls"]})


async def test_a_session_with_secrets_does_not_lend_its_workspace(api: Api) -> None:
    path = await root(api, secrets={"SECRET_TOKEN": "a-token-of-the-tests"})
    body = {"workspace": "read-only"}
    problem = await api.problem(
        409, "conflict", "POST", f"{path}/spawn", json=body, key=OPERATOR_KEY
    )
    assert "secrets" in problem["detail"]
    child = await spawned(api, path)
    assert child["secrets"] == []
    body = {"label": "a-token-of-the-tests"}
    problem = await api.problem(
        400, "validation_error", "POST", f"{path}/spawn", json=body, key=OPERATOR_KEY
    )
    assert problem["field"] == "label"


async def test_a_session_with_a_pack_and_a_paused_one_have_no_children(api: Api) -> None:
    packed = path_of(await with_pack(api, "notes"))
    problem = await api.problem(409, "conflict", "POST", f"{packed}/spawn", json={})
    assert "context pack" in problem["detail"]
    path = await root(api)
    await api.json("POST", f"{path}/pause", json={})
    await api.problem(409, "invalid_transition", "POST", f"{path}/spawn", json={})
    await api.json("POST", f"{path}/resume", json={})
    await spawned(api, path)


async def test_a_child_that_is_being_created_does_not_survive_its_parent(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await root(api)
    going, go = asyncio.Event(), asyncio.Event()
    start = api.plane.sandboxes.start

    async def slow(*arguments: Any) -> Any:
        sandbox = await start(*arguments)
        going.set()
        await go.wait()
        return sandbox

    monkeypatch.setattr(api.plane.sandboxes, "start", slow)
    spawning = asyncio.create_task(api.call("POST", f"{path}/spawn", json={}, key=OPERATOR_KEY))
    await going.wait()
    closing = asyncio.create_task(api.json("DELETE", path))
    parent = api.plane.sessions.registry.get(path.rsplit("/", 1)[1])
    assert parent is not None
    await until(lambda: parent.ending)
    go.set()
    await closing
    assert (await spawning).status in (409, 410)
    assert len(api.plane.sessions.registry) == 0
    assert api.engine.containers == {}
