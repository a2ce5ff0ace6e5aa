"""Turns with a fake agent: programs of operations within a policy and a budget."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import ANY

import pytest
import pytest_asyncio

from orchestrator.host.engine.fake import FakeEngine
from orchestrator.programs.turns.turn import OperationCall
from orchestrator.programs.turns.turn_runner import RunningTurn, TurnRunner
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.settings.operator_models import OperatorModel
from orchestrator.settings.settings import Settings
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, OTHER_KEY, Api, served
from tests.support.fake_agent import Agents, Play
from tests.support.models import Answer, ModelServer, chunk, event, model_server
from tests.support.restart import reopened
from tests.support.until import until

TESTER = Principal("operator", Role.OPERATOR)
_DENIED = ("policy-violation", "Operation explicitly denied: world.read")
_EXCLUDED = ("policy-violation", "Read not allowed: README.md")

_OPERATIONS = (
    *("world.read", "world.list", "world.search", "world.fingerprint", "world.write"),
    *("world.patch", "world.delete", "world.run", "llm.complete"),
    *("assert", "fact?", "facts", "memo"),
    *("eval", "subeval", "fixpoint"),
)
EDIT: dict[str, Any] = {
    "allowed_operations": _OPERATIONS,
    "denied_operations": [],
    "world_rules": {
        "read_patterns": ["**/*"],
        "write_patterns": ["src/**/*"],
        "read_only": False,
        "proposal_mode": False,
    },
    "llm_rules": {"allow_complete": True, "allow_intent": True, "max_tokens_per_call": 100},
    "execution_rules": {
        "allow_shell_commands": True,
        "allow_network_calls": True,
        "allow_subeval": True,
    },
}
READ = {"operation": "world.read", "args": {"ref": "README.md"}}


@pytest_asyncio.fixture
async def model(api: Api) -> AsyncIterator[ModelServer]:
    """The model `small`, whose answers use 15 tokens each."""
    async with model_server() as server:
        api.plane.models.configured["small"] = OperatorModel.model_validate(server.setting())
        yield server


async def made(api: Api, *, files: dict[str, bytes] | None = None, **members: Any) -> str:
    """The path of a new session's turns; its workspace has these files."""
    created = await api.session(key=OPERATOR_KEY, **members)
    api.agent.files.update({"README.md": b"hello\n"} if files is None else files)
    return f"/api/sessions/{created['id']}/turns"


async def run(api: Api, path: str, *operations: dict[str, Any], **body: Any) -> dict[str, Any]:
    asked = {"operations": list(operations)} if operations else body
    return await api.json("POST", path, json=asked)


def call(operation: str, **args: Any) -> dict[str, Any]:
    return {"operation": operation, "args": args}


async def test_a_list_of_operations_gives_the_list_of_their_values(api: Api) -> None:
    path = await made(api)
    turn = await run(api, path, READ, call("world.fingerprint", ref="README.md"))
    digest = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
    assert turn["turn_number"] == 1
    assert turn["outcome"]["tag"] == "ok"
    assert turn["outcome"]["value"] == ["hello\n", f"sha256:{digest}"]
    assert turn["outcome"]["metadata"].keys() == {"time_ms", "tokens", "cost_microdollars"}
    read, _ = turn["operations"]
    assert (read["operation"], read["decision"], read["args"]) == (
        *("world.read", "allow"),
        {"ref": "README.md"},
    )
    assert read["result"] == {"bytes": 6, "sha256": digest}
    assert turn["budget_remaining"].keys() == {"tokens", "cost", "time", "iterations"}
    # It is kept, and so is its record.
    assert await api.json("GET", f"{path}/1") == turn
    (listed,) = (await api.json("GET", path))["items"]
    assert listed == {name: turn[name] for name in turn if name != "operations"}
    audit = await api.json("GET", path.replace("turns", "audit") + "?turn=1")
    names = [event["operation"] for event in audit["items"]]
    assert names == ["turn.start", "world.read", "world.fingerprint", "turn.end"]


async def test_a_refusal_ends_the_turn_and_is_on_record(api: Api) -> None:
    path = await made(api)
    turn = await run(api, path, READ, call("world.write", ref="a", text="canary"), READ)
    outcome = turn["outcome"]
    assert (outcome["tag"], outcome["error_type"]) == ("error", "policy-violation")
    assert outcome["message"] == "Operation not allowed: world.write"
    assert [each["decision"] for each in turn["operations"]] == ["allow", "deny"]
    assert turn["operations"][1]["rule"] == "policy-operation"
    assert b"canary" not in b"".join(api.agent.files.values())
    # It counts as a turn.
    assert (await run(api, path, READ))["turn_number"] == 2


async def test_a_failure_is_an_outcome(api: Api) -> None:
    path = await made(api)
    turn = await run(api, path, call("world.read", ref="absent.md"))
    assert turn["outcome"]["error_type"] == "runtime-error"
    assert turn["outcome"]["message"].startswith("world.read: ")
    assert turn["operations"][0]["error"]


@pytest.mark.parametrize(
    ("operations", "field"),
    [
        ([call("world.reed", ref="a")], "operations[0].operation"),
        ([READ, call("world.read")], "operations[1].args"),
        ([call("world.read", ref=1)], "operations[0].args"),
        ([call("world.read", ref="a", extra=1)], "operations[0].args"),
        ([call("eval", form="a")], "operations[0].operation"),
    ],
)
async def test_a_malformed_list_is_refused(
    api: Api, operations: list[dict[str, Any]], field: str
) -> None:
    path = await made(api)
    problem = await api.problem(
        400, "validation_error", "POST", path, json={"operations": operations}
    )
    assert problem["field"] == field
    assert (await api.json("GET", path))["items"] == []


async def test_iterations_are_turns(api: Api) -> None:
    path = await made(api, budget={"iterations": 2})
    session = api.plane.sessions.registry.get(path.split("/")[3])
    assert session is not None
    for left in (1, 0):
        turn = await run(api, path, call("world.read", ref="absent"))
        assert turn["budget_remaining"]["iterations"] == left
    for _ in range(2):
        refused = await run(api, path, READ)
        assert refused["turn_number"] is None
        assert (refused["outcome"]["tag"], refused["outcome"]["iterations"]) == ("nonconverged", 2)
        assert refused["outcome"]["reason"] == "budget"
        await until(lambda: not session.live)
    shown = await api.json("GET", path.removesuffix("/turns"))
    assert shown["status"] == "budget-exceeded"
    assert len((await api.json("GET", path))["items"]) == 2


async def test_one_turn_at_a_time_and_an_interruption(api: Api) -> None:
    path = await made(api, policy=EDIT, permission_level="high")
    session = api.plane.sessions.registry.get(path.split("/")[3])
    assert session is not None
    api.agent.plays["sleep"] = Play(holds=True)
    waits = call("world.run", command="sleep 60")
    running = asyncio.create_task(run(api, path, waits))
    await api.agent.asked("exec")
    shown = await api.json("GET", f"{path}/1")
    assert (shown["status"], shown["outcome"]) == ("running", None)
    await api.problem(409, "conflict", "POST", path, json={"operations": [READ]})
    await api.json("POST", path.replace("turns", "interrupt"))
    turn = await running
    assert turn["outcome"]["error_type"] == "interrupted"
    assert (await run(api, path, READ))["turn_number"] == 2


async def test_a_turn_belongs_to_its_session(api: Api) -> None:
    path = await made(api)
    await run(api, path, READ)
    for method, place in (("GET", path), ("GET", f"{path}/1"), ("POST", path)):
        body = {"json": {"operations": [READ]}} if method == "POST" else {}
        await api.problem(404, "not_found", method, place, key=OTHER_KEY, **body)
    for number in ("0", "2", "1x", "9" * 30):
        await api.problem(404, "not_found", "GET", f"{path}/{number}", key=ADMIN_KEY)


async def test_operations_are_streamed(api: Api) -> None:
    path = await made(api)
    response = await api.call(
        "POST", path, json={"operations": [READ, READ]}, headers={"Accept": "text/event-stream"}
    )
    text = await response.text()
    names = [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event")]
    assert names == ["start", "operation", "operation", "end"]
    assert '"hello\\n"' in text


async def test_secrets_are_in_no_turn(api: Api) -> None:
    path = await made(
        api, files={"a": b"so hidden-value-1 is"}, secrets={"SECRET_A": "hidden-value-1"}
    )
    turn = await run(api, path, call("world.read", ref="a"), call("assert", fact="hidden-value-1"))
    assert "hidden-value-1" not in json.dumps(turn)
    assert turn["outcome"]["tag"] == "ok"
    facts = await run(api, path, call("facts"))
    assert "hidden-value-1" not in json.dumps(facts)


@pytest.mark.parametrize(
    ("code", "tag", "value"),
    [
        ('(string-length (world.read "README.md"))', "ok", 6),
        ('(map world.read (list "README.md"))', "ok", ["hello\n"]),
        ('(with-budget ((iterations 1)) (world.read "README.md"))', "ok", "hello\n"),
        ("(list (with-budget ((iterations 1)) (facts) (facts)) 7)", "ok", [ANY, 7]),
        ('(subeval "(world.read \\"README.md\\")" ((read "*.md")))', "ok", "hello\n"),
        ("(define (f) (memo 1 (facts))) (list (f) (f))", "ok", [[], []]),
        ("(fixpoint (lambda (x) (- 1 x)) 0 100)", "cycle", 0),
        ('(assert \'(a "b")) (list (fact? \'(a "b")) (fact? \'(a b)))', "ok", [True, False]),
        ("(eval (list '+ 1 2))", "ok", 3),
        ("(list (session/turn-number) (session/status) (session/read-only?))", "ok", ANY),
        ("(session/allowed? 'world.write)", "ok", False),
        ("(list (budget/remaining 'tokens) (session/budget-remaining 'cost))", "ok", [None, None]),
        ("(session/operations-count)", "ok", 0),
    ],
)
async def test_programs(api: Api, code: str, tag: str, value: Any) -> None:
    path = await made(api)
    turn = await run(api, path, code=code)
    assert (turn["outcome"]["tag"], turn["outcome"].get("value")) == (tag, value), turn


async def test_operations_are_recorded_with_the_nested_program_that_they_are_of(api: Api) -> None:
    path = await made(api)
    nested = (
        "(begin (facts) (with-budget ((iterations 9)) (fact? 1)) (subeval '(assert 1)) (facts))"
    )
    turn = await run(api, path, code=f"(begin (facts) (subeval '{nested}) (facts))")
    done = (await api.json("GET", f"{path}/{turn['turn_number']}"))["operations"]
    within = {each["seq"]: each["args"].get("within") for each in done}
    outer, inner = (each["seq"] for each in done if each["operation"] == "subeval")
    assert [each["operation"] for each in done if within[each["seq"]] == outer] == [
        *("facts", "fact?", "subeval", "facts"),
    ]
    assert [each["operation"] for each in done if within[each["seq"]] == inner] == ["assert"]
    assert list(within.values()).count(None) == 3  # and its own subeval is one of them


@pytest.mark.parametrize(
    ("code", "error_type", "said"),
    [
        ("(car 1)", "runtime-error", "line 1, column 1"),
        ("(", "runtime-error", "line 1"),
        ("(let loop () (loop))", "runtime-error", "steps"),
        ('(world.write "src/a" "x")', "policy-violation", "Operation not allowed: world.write"),
        ('(subeval \'(world.read "README.md") ((deny world.read)))', *_DENIED),
        ('(subeval \'(world.read "README.md") ((read "src/**")))', *_EXCLUDED),
        ('(subeval \'(facts) ((read "[")))', "runtime-error", "subeval"),
        ("(with-budget ((tokens -1)) 1)", "runtime-error", "with-budget needs a number"),
        ("(budget/remaining 'money)", "runtime-error", "not money"),
        ('(world.read "README.md" 1)', "runtime-error", "world.read takes 1 arguments"),
    ],
)
async def test_programs_that_fail(api: Api, code: str, error_type: str, said: str) -> None:
    path = await made(api)
    outcome = (await run(api, path, code=code))["outcome"]
    assert outcome["error_type"] == error_type, outcome
    assert said in outcome["message"]


async def test_definitions_stay_unless_the_turn_fails(api: Api) -> None:
    path = await made(api)
    await run(api, path, code="(define x 3) (define (triple y) (* x y))")
    await run(api, path, code="(define x 5) (car 1)")
    assert (await run(api, path, code="(triple 2)"))["outcome"]["value"] == 6


async def test_what_a_program_displays_is_returned(api: Api) -> None:
    path = await made(api)
    turn = await run(api, path, code='(display "hey") 1')
    assert (turn["printed"], (await api.json("GET", f"{path}/1"))["printed"]) == ("hey", "hey")


async def test_without_a_model_a_turn_needs_one(api: Api) -> None:
    path = await made(api)
    turn = await run(api, path, code='(llm.complete "hello")')
    assert (turn["outcome"]["tag"], turn["outcome"]["need_type"]) == ("needs", "needs-primitive")
    assert turn["operations"][0]["error"]


@pytest.mark.slow
async def test_models_are_called_within_the_budget(api: Api, model: ModelServer) -> None:
    path = await made(api, policy=EDIT, budget={"tokens": 40})
    turn = await run(api, path, code='(llm.complete "hello")')
    assert turn["outcome"]["value"] == "done"
    assert (turn["tokens_used"], turn["budget_remaining"]["tokens"]) == (15, 25)
    (called,) = turn["operations"]
    assert (called["tokens_used"], called["result"]["model"]) == (15, "small")
    asked = await run(api, path, code='(llm.complete "hello" 101)')
    assert asked["outcome"]["error_type"] == "policy-violation"
    # What uses up the budget completes; the next call ends the turn and the session.
    code = '(define (call) (llm.complete "hello")) (call) (call) (call)'
    ended = await run(api, path, code=code)
    assert (ended["outcome"]["tag"], ended["outcome"]["reason"]) == ("nonconverged", "budget")
    assert ended["tokens_used"] == 30
    assert len(model.bodies) == 3
    assert model.bodies[-1]["max_tokens"] == 10
    session = api.plane.sessions.registry.get(path.split("/")[3])
    await until(lambda: session is None or not session.live)
    stats = await api.json("GET", path.replace("turns", "audit/stats"))
    assert stats["total_tokens"] == 45


async def test_a_nested_budget_of_tokens_ends_its_part(api: Api, model: ModelServer) -> None:
    path = await made(api, policy=EDIT)
    code = (
        '(list (with-budget ((tokens 20)) (llm.complete "a") (llm.complete "b") (llm.complete "c"))'
        " 7)"
    )
    turn = await run(api, path, code=code)
    inner, seven = turn["outcome"]["value"]
    assert (inner["tag"], seven, len(model.bodies)) == ("nonconverged", 7, 2)


async def test_a_turn_of_a_killed_control_plane_has_ended(
    api: Api,
    settings: Settings,
    engine: FakeEngine,
    agents: Agents,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = await made(api, id="box")
    await run(api, path, READ)

    async def killed(*_: object) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(TurnRunner, "run", killed)
    session = api.plane.sessions.registry.live[0]
    started = await api.plane.turns.start(TESTER, session, (OperationCall("facts", {}),))
    assert isinstance(started, RunningTurn)
    await asyncio.wait([started.whole])
    monkeypatch.undo()
    await api.plane.close()
    for _ in range(2):
        plane = await reopened(settings, engine, agents)
        async with served(plane, engine, agents) as again:
            turn = await again.json("GET", f"{path}/2")
            assert (turn["status"], turn["outcome"]["error_type"]) == ("ended", "interrupted")
            events = await again.json("GET", "/api/sessions/box/audit?turn=2")
            names = [event["operation"] for event in events["items"]]
            assert names == ["turn.start", "turn.end"]
            await plane.close()


async def test_commands_with_a_network_need_permission(api: Api) -> None:
    rules = {**EDIT["execution_rules"], "allow_network_calls": False}
    for level, tag in (("low", "ok"), ("high", "error")):
        policy = {**EDIT, "execution_rules": rules}
        path = await made(api, policy=policy, permission_level=level)
        outcome = (await run(api, path, call("world.run", command="ls")))["outcome"]
        assert outcome["tag"] == tag, outcome
    assert outcome["message"] == "Network calls not allowed"


async def test_an_interrupted_call_of_a_model_is_paid_for_and_on_record(api: Api) -> None:
    path = await made(api, policy=EDIT)
    async with model_server(Answer(body=[event(chunk("so"))], hangs=True)) as server:
        api.plane.models.configured["small"] = OperatorModel.model_validate(server.setting())
        running = asyncio.create_task(run(api, path, code='(llm.complete "hello")'))
        await until(lambda: bool(server.bodies))
        await api.json("POST", path.replace("turns", "interrupt"))
        turn = await running
    (called,) = turn["operations"]
    assert (called["operation"], called["error"]) == ("llm.complete", "interrupted")
    assert turn["tokens_used"] == called["tokens_used"] > 0
    budget = await api.json("GET", path.replace("turns", "budget"))
    assert budget["consumed"]["tokens"] == turn["tokens_used"]


async def test_long_turns_come_in_more_than_one_page(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await made(api)
    for _ in range(3):
        await run(api, path, READ)
    monkeypatch.setattr("orchestrator.programs.turns.turn_rows._MOST_PAGE", 1)
    numbers, after = [], 0
    while after is not None:
        page = await api.json("GET", f"{path}?after={after}")
        numbers += [turn["turn_number"] for turn in page["items"]]
        after = page["next"]
    assert numbers == [1, 2, 3]
