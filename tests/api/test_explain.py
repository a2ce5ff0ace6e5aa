"""Explanations over HTTP: the same decisions as exec, without running anything."""

from typing import Any

from tests.api.conftest import OPERATOR_KEY, OTHER_KEY, Api
from tests.support.cases import each

EXPLAIN = "/api/policies/explain"


async def test_by_level(api: Api) -> None:
    body: dict[str, Any] = {"level": "low", "command": "curl example.org"}
    answer = await api.json("POST", EXPLAIN, json=body, key=OPERATOR_KEY)
    assert answer == {
        "allow": False,
        "verdict": "deny",
        "rule": "command-allowlist",
        "layer": "parser",
        "message": answer["message"],
        "remedy": answer["remedy"],
        "layers": answer["layers"],
    }
    layers = answer["layers"]
    assert [stop["layer"] for stop in layers] == ["parser", "landlock", "network"]
    assert (layers[0]["message"], layers[0]["remedy"]) == (answer["message"], answer["remedy"])
    assert "`commands` of the level's file" in layers[1]["remedy"]
    assert '`network = "open"`' in layers[2]["remedy"]
    assert answer["message"].startswith("command not allowed for permission level low: curl")
    body = {"level": "high", "argv": ["make", "it"], "cwd": "src"}
    answer = await api.json("POST", EXPLAIN, json=body)
    assert (answer["allow"], answer["rule"], answer["remedy"]) == (True, "allowed", None)
    assert (answer["layer"], answer["layers"]) == ("parser", [])
    body = {"level": "high", "shell": "cd a && make | tail"}
    assert (await api.json("POST", EXPLAIN, json=body))["allow"] is True
    body = {"level": "high", "argv": ["strace", "ls"]}
    answer = await api.json("POST", EXPLAIN, json=body)
    assert (answer["allow"], answer["layer"], answer["remedy"]) == (True, "seccomp", None)
    body = {"level": "low", "path": "../x"}
    answer = await api.json("POST", EXPLAIN, json=body)
    assert [stop["layer"] for stop in answer["layers"]] == ["parser", "mount", "landlock"]
    body = {"level": "high", "path": "../x"}
    answer = await api.json("POST", EXPLAIN, json=body)
    assert (answer["verdict"], answer["message"]) == ("allow", "the path can be read")
    body = {"level": "high", "path": "../proc/x"}
    answer = await api.json("POST", EXPLAIN, json=body)
    assert (answer["verdict"], answer["rule"]) == ("deny", "path-outside-workspace")


@each(
    "words",
    [
        {"command": "ls"},
        {"command": "ls | wc"},
        {"shell": "ls | wc"},
        {"shell": "ls | wc", "cwd": "/etc"},
        {"shell": " "},
        {"argv": ["find", ".", "-exec", "id"]},
        {"argv": ["cat", "../a"], "cwd": "src"},
        {"argv": ["cat", "../a"]},
        {"command": "ls 'a"},
        {"argv": [""]},
        {"argv": ["ls"], "cwd": "/etc"},
    ],
)
async def test_it_says_what_exec_says(api: Api, words: dict[str, Any]) -> None:
    session = await api.session(permission_level="low")
    path = f"/api/sessions/{session['id']}"
    before = (await api.json("GET", path + "/audit"))["items"]
    explained = await api.call("POST", EXPLAIN, json={"session": session["id"], **words})
    assert (await api.json("GET", path + "/audit"))["items"] == before
    assert not any(method == "exec" for method, _ in api.agent.requests)
    done = await api.call("POST", path + "/exec", json=words)
    said, did = await explained.json(content_type=None), await done.json(content_type=None)
    if explained.status == 200:
        assert (done.status == 200) is said["allow"]
        assert done.status == 200 or (did["rule"], did["detail"]) == (said["rule"], said["message"])
    else:
        assert (explained.status, said["field"], said["detail"]) == (
            400,
            did["field"],
            did["detail"],
        )


async def test_whose_session(api: Api) -> None:
    mine = await api.session(key=OPERATOR_KEY, permission_level="low")
    theirs = await api.session(key=OTHER_KEY)
    body = {"session": mine["id"], "command": "make"}
    for key in (OPERATOR_KEY, mine["handle"]):
        assert (await api.json("POST", EXPLAIN, json=body, key=key))["allow"] is False
    for key in (OTHER_KEY, theirs["handle"]):
        await api.problem(404, "not_found", "POST", EXPLAIN, json=body, key=key)
    body = {"level": "low", "command": "make"}
    await api.problem(403, "permission_denied", "POST", EXPLAIN, json=body, key=mine["handle"])
    await api.problem(401, "unauthorized", "POST", EXPLAIN, json=body, key=None)


@each(
    ("body", "field"),
    [
        ({}, None),
        ({"level": "low"}, None),
        ({"command": "ls"}, None),
        ({"level": "low", "session": "x", "command": "ls"}, None),
        ({"level": "low", "command": "ls", "path": "x"}, None),
        ({"level": "low", "path": "x", "cwd": "y"}, None),
        ({"level": "low", "shell": "ls", "command": "ls"}, None),
        ({"level": "low", "shell": "a\0"}, "shell"),
        ({"level": "root", "command": "ls"}, "level"),
        ({"level": "low", "path": ""}, "path"),
        ({"level": "low", "path": "a\0"}, "path"),
        ({"level": "low", "command": "ls", "env": {}}, "env"),
    ],
)
async def test_bad_questions(api: Api, body: dict[str, Any], field: str | None) -> None:
    problem = await api.problem(400, "validation_error", "POST", EXPLAIN, json=body)
    assert problem.get("field") == field
