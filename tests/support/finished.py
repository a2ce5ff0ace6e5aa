"""Programs that tests run to their end."""

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path

from tests.support.limits import PROGRAM_SECONDS


async def finished(
    *command: str, cwd: Path, env: Mapping[str, str], seconds: float = PROGRAM_SECONDS
) -> tuple[int, str]:
    """The exit status of a program, and what it prints on both streams.

    If it takes longer, or the test is cancelled, it is killed with what it has started.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(seconds):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()
