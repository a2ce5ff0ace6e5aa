"""Programs that are forked behave as those that a new Python runs."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.support.finished import finished
from tests.support.forked import fork, in_a_shell


async def test_words_environment_directory_output_and_status_are_the_program_s(
    tmp_path: Path,
) -> None:
    env = {"PATH": os.environ["PATH"], "PADDOCK_STATE_DIR": str(tmp_path)}
    program = await fork("paddock", "--no-such", cwd=tmp_path, env=env)
    output, _ = await program.communicate()
    assert (await program.wait(), output.startswith(b"paddock: no such option")) == (2, True)
    status, said = await finished(*in_a_shell("json.tool", "missing"), cwd=tmp_path, env=env)
    assert (status, "No such file or directory: 'missing'" in said) == (2, True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_signal_ends_the_program(number: signal.Signals, tmp_path: Path) -> None:
    program = await fork("http.server", "--bind", "127.0.0.1", "0", cwd=tmp_path, env={})
    program.send_signal(number)
    assert await program.wait() == -number
    assert await program.communicate() is not None
    program.send_signal(number)


async def test_it_ends_with_who_started_it(tmp_path: Path) -> None:
    command = in_a_shell("http.server", "--bind", "127.0.0.1", "0")
    shell = await asyncio.create_subprocess_exec(
        *command, cwd=tmp_path, env={}, stdout=asyncio.subprocess.PIPE
    )
    assert shell.stdout is not None
    shell.kill()
    # The pipe's last writer is the program.
    assert await shell.stdout.read() is not None
    assert await shell.wait() == -signal.SIGKILL


async def test_signals_of_a_shell_reach_the_program(tmp_path: Path) -> None:
    script = '"$@" & kill -TERM $!; wait $!'
    status, _ = await finished(
        *("bash", "-c", script, "bash", *in_a_shell("http.server", "--bind", "127.0.0.1", "0")),
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
    )
    assert status == 128 + signal.SIGTERM
