"""A refusal of a session policy says which policy's member decides, and what to do."""

from typing import Any

import pytest

from paddock.cli.resources.session_policies import print_policies, print_policy
from paddock.contract.policies import LISTED_EXAMPLE, ListedPolicy
from tests.api.conftest import OPERATOR_KEY, Api
from tests.api.test_turns import call, made, model, run
from tests.support.models import Answer, ModelServer

__all__ = ["model"]

RUN = call("world.run", command="ls")
ALL = ["world.run", "world.read", "llm.complete"]
ALLOWS: dict[str, Any] = {"extends": "SAFE_EDIT", "allowed_operations": ALL}
NEEDS = (
    "create the session with the built-in policy SAFE_WORK, or with one of your own, which must "
    "itself give all of these: `allowed_operations` with world.run"
)


@pytest.mark.parametrize(
    ("policy", "rule", "message", "origin"),
    [
        (
            *(None, "policy-operation", "Operation not allowed: world.run"),
            "`allowed_operations` is that of the built-in policy SAFE_ANALYSIS.",
        ),
        (
            *({"extends": "SAFE_EDIT"}, "policy-operation", "Operation not allowed: world.run"),
            "does not give `allowed_operations`, so it has that of SAFE_EDIT.",
        ),
        (
            *(ALLOWS, "policy-denied", "Operation explicitly denied: world.run"),
            "does not give `denied_operations`, so it has that of SAFE_EDIT.",
        ),
        (
            {**ALLOWS, "denied_operations": []},
            *("policy-execution", "Shell commands not allowed"),
            "does not give `execution_rules.allow_shell_commands`, so it has that of SAFE_EDIT.",
        ),
    ],
)
async def test_commands_that_an_inherited_member_denies(
    api: Api, model: ModelServer, policy: Any, rule: str, message: str, origin: str
) -> None:
    path = await made(api, **({} if policy is None else {"policy": policy}))
    turn = await run(api, path, RUN)
    outcome = turn["outcome"]
    assert (outcome["message"], outcome["metadata"]["rule"]) == (message, rule)
    assert origin in outcome["metadata"]["remedy"]
    assert NEEDS in outcome["metadata"]["remedy"]
    # So does an explanation,
    named = {"session": path.split("/")[3], "operation": "world.run"}
    explained = await api.json("POST", "/api/policies/explain", json=named)
    assert (explained["rule"], explained["remedy"]) == (rule, outcome["metadata"]["remedy"])
    # and what a model is told that calls a command.
    if policy is not None:
        model.answers = [Answer(calls=[("exec", {"command": "ls"})]), Answer("I can't")]
        sent = {"messages": [{"content": "list"}]}
        await api.json("POST", path.replace("turns", "send"), json=sent)
        told = model.bodies[-1]["messages"][-1]["content"]
        assert told.startswith(f"Refused by {rule}: {message}. ")
        assert origin in told


async def test_a_policy_that_gives_all_of_them_runs_commands(api: Api) -> None:
    policy = {**ALLOWS, "denied_operations": [], "execution_rules": {"allow_shell_commands": True}}
    path = await made(api, policy=policy, permission_level="low")
    assert (await run(api, path, RUN))["outcome"]["tag"] == "proposed"


async def test_the_policy_for_work_runs_commands_of_a_model(api: Api, model: ModelServer) -> None:
    path = await made(api, policy="SAFE_WORK", permission_level="low")
    model.answers = [
        Answer(calls=[("write_file", {"path": "lib/a.py", "text": "x = 1"})]),
        Answer(calls=[("exec", {"command": "cat lib/a.py"})]),
        Answer(calls=[("exec", {"command": "gcc lib/a.c"})]),
        Answer("done"),
    ]
    sent = {"messages": [{"content": "work"}], "max_ticks": 5}
    turn = await api.json("POST", path.replace("turns", "send"), json=sent)
    assert turn["outcome"]["tag"] == "ok"
    told = [each["content"] for each in model.bodies[-1]["messages"] if each["role"] == "tool"]
    # It is written at once, a command of the level runs, and another one does not.
    assert api.agents.files["lib/a.py"] == b"x = 1"
    assert '"exit_code": 0' in told[1]
    assert told[2].startswith("Refused by command-allowlist")


async def test_where_a_member_comes_from_survives_a_restart(api: Api) -> None:
    created = await api.session(policy=ALLOWS, key=OPERATOR_KEY)
    session = api.plane.sessions.registry.get(created["id"])
    assert session is not None
    restored = type(session.policy).restored(session.policy.stored())
    assert restored.extends == "SAFE_EDIT"
    assert restored.inherited == session.policy.inherited
    assert "denied_operations" in restored.inherited
    assert "allowed_operations" not in restored.inherited


async def test_the_list_says_which_policies_permit_commands(api: Api) -> None:
    listed = (await api.json("GET", "/api/policies", key=OPERATOR_KEY))["session_policies"]
    (work,) = (policy for policy in listed if policy["name"] == "SAFE_WORK")
    assert work["commands_refused"] is None
    for policy in listed:
        assert policy["extends"] is None
        if policy is work:
            continue
        assert policy["commands_refused"].startswith("Operation not allowed: world.run. ")
        assert NEEDS in policy["commands_refused"]


def test_the_command_line_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    refused = ListedPolicy.model_validate(LISTED_EXAMPLE)
    permitting = ListedPolicy.model_validate(
        {**LISTED_EXAMPLE, "name": "runs", "extends": "SAFE_EDIT", "commands_refused": None}
    )
    print_policies([refused])
    shown = capsys.readouterr()
    assert "COMMANDS" in shown.out
    assert "no policy permits commands" in shown.err
    print_policies([refused, permitting])
    shown = capsys.readouterr()
    assert "no policy permits commands" not in shown.err
    (row,) = (line.split() for line in shown.out.splitlines() if line.startswith("runs"))
    assert row[-2:] == ["yes", "SAFE_EDIT"]
    denied = {
        "name": "denied",
        "extends": "SAFE_EDIT",
        "inherited": ["denied_operations", "llm_rules.allow_intent"],
    }
    print_policies([ListedPolicy.model_validate({**LISTED_EXAMPLE, **denied})])
    assert "no: inherits denied_operations" in capsys.readouterr().out
    print_policy(refused)
    assert "Operation not allowed: world.run" in capsys.readouterr().out
