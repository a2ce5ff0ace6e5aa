"""Evaluations whose model is a script: the sandbox is named as users do."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.log import read_eval_log
from inspect_ai.model import ChatMessageAssistant, ModelOutput, execute_tools
from inspect_ai.scorer import includes
from inspect_ai.solver import TaskState, solver
from inspect_ai.tool import ToolCall, bash
from inspect_ai.util import (
    OutputLimitExceededError,
    SandboxEnvironmentSpec,
    SandboxUserUnsupportedError,
    sandbox,
)

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
            own = (await sandbox().exec(["whoami"])).stdout.strip()
            assert (await sandbox().exec(["whoami"], user=own)).success
            with pytest.raises(SandboxUserUnsupportedError, match="root"):
                await sandbox().exec(["whoami"], user="root")
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


PROGRAM = """
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.solver import solver
from inspect_ai.util import sandbox

@solver
def asking():
    async def solve(state, generate):
        assert (await sandbox().exec(["sh", "-c", "pwd"])).stdout == "/workspace\\n"
        connection = await sandbox().connection()
        assert connection.command.startswith("paddock shell ")
        return state
    return solve

@task
def work():
    return Task(dataset=[Sample(input="go")], solver=asking())
"""


def inspect(tmp_path: Path, *arguments: str) -> str:
    done = subprocess.run(
        (sys.executable, "-m", "inspect_ai", *arguments),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_command_line_finds_the_sandbox_and_its_file(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(PROGRAM)
    (tmp_path / "paddock.toml").write_text('permission_level = "high"\n')
    model = ("--model", "mockllm/model", "--display", "plain")
    inspect(tmp_path, "eval", "work.py", "--sandbox", "paddock", "--no-fail-on-error", *model)
    (log,) = [read_eval_log(str(path)) for path in tmp_path.glob("logs/*.eval")]
    assert log.status == "success"
    assert log.samples is not None
    assert log.samples[0].error is None


def test_what_a_killed_evaluation_leaves_is_cleaned_up(tmp_path: Path) -> None:
    with PaddockSync() as paddock, paddock.sessions.create() as other:
        with paddock.sessions.create(labels={"framework": "inspect"}) as left:
            inspect(tmp_path, "sandbox", "cleanup", "paddock")
            live = {each.id for each in paddock.sessions.list() if each.info.live}
        other.close(purge=True)
    assert (left.id in live, other.id in live) == (False, True)
