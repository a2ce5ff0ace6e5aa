"""Evaluations whose model is a script: the sandbox is named as users do."""

from pathlib import Path
from typing import Any

import pytest
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageAssistant, ModelOutput, execute_tools
from inspect_ai.scorer import includes
from inspect_ai.solver import TaskState, solver
from inspect_ai.tool import ToolCall, bash
from inspect_ai.util import OutputLimitExceededError, SandboxEnvironmentSpec, sandbox

from paddock import PaddockSync
from paddock.integrations.inspect import PaddockConfig

HIGH = SandboxEnvironmentSpec("paddock", PaddockConfig(permission_level="high"))


def evaluated(tmp_path: Path, task: Task) -> Any:
    (log,) = eval(task, model="mockllm/model", log_dir=str(tmp_path), display="none")
    with PaddockSync() as paddock:
        assert [each.id for each in paddock.sessions.list() if each.info.live] == []
    return log


def test_a_model_uses_its_shell(tmp_path: Path) -> None:
    """The tool's call is given: the scripted model would count tokens with a file of a vendor's."""

    @solver
    def asking() -> Any:
        async def solve(state: TaskState, generate: Any) -> TaskState:
            call = ToolCall("1", "bash", {"command": "cat given.txt | tr a-z A-Z"})
            state.messages.append(ChatMessageAssistant(content="", tool_calls=[call]))
            said = await execute_tools(state.messages, [bash()])
            state.output = ModelOutput.from_content("mockllm", said.messages[0].text)
            return state

        return solve

    task = Task(
        dataset=[Sample(input="what?", target="HELLO", files={"given.txt": "hello"})],
        solver=asking(),
        scorer=includes(),
        sandbox=HIGH,
    )
    log = evaluated(tmp_path, task)
    assert log.status == "success", log.error
    assert log.results.scores[0].metrics["accuracy"].value == 1


def test_a_refusal_says_the_rule_and_what_to_do(tmp_path: Path) -> None:
    """The level is the default one, which runs no shell; the file beside the task names it."""

    @solver
    def asking() -> Any:
        async def solve(state: TaskState, generate: Any) -> TaskState:
            with pytest.raises(PermissionError, match=r"command-allowlist.*higher"):
                await sandbox().exec(["sh", "-c", "true"])
            with pytest.raises(PermissionError, match="path-outside-workspace"):
                await sandbox().read_file("/etc/passwd")
            assert (await sandbox().exec(["ls"])).success
            return state

        return solve

    configuration = tmp_path / "paddock.toml"
    configuration.write_text('permission_level = "medium"\n')
    task = Task(
        dataset=[Sample(input="go")], solver=asking(), sandbox=("paddock", str(configuration))
    )
    log = evaluated(tmp_path, task)
    assert log.status == "success", log.error


def test_much_input_and_output(tmp_path: Path) -> None:
    """A command that reads slower than it is fed, and one that prints more than is kept."""

    @solver
    def working() -> Any:
        async def solve(state: TaskState, generate: Any) -> TaskState:
            payload = "a" * (3 * 1024 * 1024)
            done = await sandbox().exec(["sh", "-c", "head -c 10; exit 3"], input=payload)
            assert (done.returncode, done.stdout) == (3, "a" * 10)
            done = await sandbox().exec(["sh", "-c", "cat"], input=payload)
            assert (done.success, done.stdout == payload) == (True, True)
            with pytest.raises(OutputLimitExceededError) as limit:
                await sandbox().exec(["head", "-c", "6000000", "/dev/zero"])
            assert limit.value.truncated_output.startswith("\0")
            return state

        return solve

    log = evaluated(tmp_path, Task(dataset=[Sample(input="go")], solver=working(), sandbox=HIGH))
    assert log.status == "success", log.error


def test_a_sample_that_fails_leaves_no_session(tmp_path: Path) -> None:
    @solver
    def failing() -> Any:
        async def solve(state: TaskState, generate: Any) -> TaskState:
            raise RuntimeError("on purpose")

        return solve

    task = Task(dataset=[Sample(input="go")], solver=failing(), sandbox=HIGH)
    assert evaluated(tmp_path, task).status == "error"
