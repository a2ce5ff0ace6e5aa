"""LangChain's deepagents, with LangChain's standard tests of sandboxes."""

from pathlib import Path

import pytest

from tests.foreign.conftest import Keep
from tests.foreign.environments import environment
from tests.foreign.outcomes import judged
from tests.foreign.suites import outcomes
from tests.support.server import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")


_GLOB = "it expects paths below the directory; deepagents' glob returns whole ones"
# The suite of this version and deepagents of this version disagree.
EXCEPTIONS = {
    **dict.fromkeys(
        (
            "test_glob",
            "test_glob_basic_pattern",
            "test_glob_hidden_files_explicitly",
            "test_glob_with_character_class",
            "test_glob_with_directories",
            "test_glob_with_question_mark",
        ),
        f"{_GLOB}; the same with programs on one's own machine",
    ),
    "test_write_existing_file_fails": "deepagents replaces a file that exists; the same with "
    "programs on one's own machine",
}


async def test_its_standard_tests(client: Path, plane: Server, keep: Keep, tmp_path: Path) -> None:
    """What fails fails with the simplest backend, too: a program on this machine."""
    framework = environment("deepagents", client)
    options = ("-o", "asyncio_mode=auto", "-k")
    suite, local = [
        await outcomes(framework, "suite_deepagents", plane, tmp_path, *options, name)
        for name in ("TestPaddock", "TestLocal")
    ]
    assert len(suite) == 86
    assert suite == local
    result = judged(
        suite,
        EXCEPTIONS,
        client="LangChain deepagents",
        version="deepagents 0.7.32, langchain-tests 1.1.9",
        suite="SandboxIntegrationTests",
        level="high",
    )
    keep(result)


async def test_trials(client: Path, plane: Server, keep: Keep, tmp_path: Path) -> None:
    """Refusals, time-outs, and an agent whose model is a script."""
    framework = environment("deepagents", client)
    options = ("-o", "asyncio_mode=auto")
    found = await outcomes(framework, "trials_deepagents", plane, tmp_path, *options)
    result = judged(
        found,
        {},
        client="LangChain deepagents",
        version="deepagents 0.7.32",
        suite="trials: refusals, time-outs, an agent whole",
        level="high, medium",
    )
    keep(result)
