"""mini-swe-agent's environment, named by its class's path, and an agent whose model is a script."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments import get_environment
from minisweagent.exceptions import Submitted
from minisweagent.models.test_models import DeterministicModel, make_output

from paddock import PaddockSync

CLASS = "paddock.integrations.mini_swe_agent.PaddockEnvironment"
HIGH = {"environment_class": CLASS, "permission_level": "high", "env": {"WORD": "hello"}}
DONE = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


def live() -> set[str]:
    with PaddockSync() as paddock:
        return {each.id for each in paddock.sessions.list() if each.info.live}


@pytest.fixture(scope="module")
def environment() -> Iterator[Any]:
    made = get_environment(HIGH)
    yield made
    made.cleanup()
    made.cleanup()
    assert made.serialize()["info"]["config"]["session_id"] not in live()


def test_output_is_joined_in_its_order(environment: Any) -> None:
    found = environment.execute({"command": "echo 1; echo 2 >&2; echo $WORD; exit 3"})
    assert found == {"output": "1\n2\nhello\n", "returncode": 3, "exception_info": ""}


def test_each_command_begins_anew(environment: Any) -> None:
    environment.execute({"command": "mkdir -p d; cd d; X=1"})
    found = environment.execute({"command": "pwd; echo $X; printf '\\xff'"})
    assert found["output"] == "/workspace\n\n\N{REPLACEMENT CHARACTER}"
    assert environment.execute({"command": "pwd"}, cwd="d")["output"] == "/workspace/d\n"


def test_a_command_that_takes_too_long(environment: Any) -> None:
    found = environment.execute({"command": "echo begun; sleep 600"}, timeout=1)
    assert (found["output"], found["returncode"]) == ("begun\n", -1)
    assert found["extra"]["exception_type"] == "TimeoutExpired"


@pytest.mark.parametrize(("line", "ends"), [("", True), ("; exit 1", False)])
def test_the_marker_ends_the_task(environment: Any, line: str, ends: bool) -> None:
    command = {"command": f"echo {DONE}; echo result{line}"}
    if not ends:
        assert environment.execute(command)["returncode"] == 1
        return
    with pytest.raises(Submitted) as end:
        environment.execute(command)
    assert end.value.messages[0]["extra"]["submission"] == "result\n"


def test_a_refusal_is_an_observation() -> None:
    """The level is the default one, which runs no shell."""
    made = get_environment({"environment_class": CLASS})
    found = made.execute({"command": "ls"})
    assert (found["output"], found["returncode"]) == ("", -1)
    assert "shell-level" in found["exception_info"]
    assert found["extra"]["exception_type"] == "PermissionDeniedError"
    made.cleanup()


def test_an_agent_works_whole(environment: Any) -> None:
    actions = ["seq 3 > numbers", "paste -sd+ numbers | tee sum", f"echo {DONE}; cat sum"]
    model = DeterministicModel(
        outputs=[make_output("next", [{"command": command}]) for command in actions]
    )
    agent = DefaultAgent(
        model, environment, system_template="You", instance_template="{{task}}", cost_limit=99
    )
    assert agent.run("add up") == {"exit_status": "Submitted", "submission": "1+2+3\n"}
    assert "1+2+3" in json.dumps(agent.messages)


def test_a_configuration_has_no_key_and_no_unknown_names(environment: Any) -> None:
    assert "key" not in environment.serialize()["info"]["config"]["environment"]
    with pytest.raises(ValueError, match="permision_level"):
        get_environment({"environment_class": CLASS, "permision_level": "high"})
    assert environment.get_template_vars(more=1)["more"] == 1


def test_a_program_that_ends_without_cleanup_leaves_no_session() -> None:
    program = (
        "from minisweagent.environments import get_environment\n"
        f"made = get_environment({HIGH!r})\n"
        "print('session', made.serialize()['info']['config']['session_id'])\n"
    )
    done = subprocess.run(
        (sys.executable, "-c", program), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("session ")[1].strip() not in live()
    assert "Traceback" not in done.stderr
