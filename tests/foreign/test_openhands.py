"""OpenHands' RemoteWorkspace. Its package has no tests, so these are trials of each method."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.foreign.conftest import Keep
from tests.foreign.environments import environment, interpreter
from tests.foreign.outcomes import judged, of_junit
from tests.foreign.suites import PROGRAMS
from tests.support.server import Server, leaving_nothing

pytestmark = pytest.mark.asyncio(loop_scope="module")

OF_ALL = {"client": "OpenHands", "version": "openhands-sdk 1.58.2", "level": "high"}
PYTHON = "3.12"
_SECONDS = 1800
Session = dict[str, Any]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(sandbox_image: str) -> AsyncIterator[Server]:
    """A control plane with the protocol; at its end, nothing of a session is left."""
    named = {"PADDOCK_IMAGE": sandbox_image, "PADDOCK_COMPAT": "openhands"}
    async with leaving_nothing(PADDOCK_LOG_LEVEL="warning", **named) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def session(plane: Server) -> AsyncIterator[Session]:
    """A session, which ends with the test."""
    made = await plane.ok("POST", "/api/sessions", {"permission_level": "high"})
    yield made
    await plane.ok("DELETE", f"/api/sessions/{made['id']}?purge=true")


async def test_trials(
    client: Path, plane: Server, session: Session, keep: Keep, tmp_path: Path
) -> None:
    python = interpreter(PYTHON)
    if python is None:
        pytest.skip(f"openhands-sdk needs Python {PYTHON} or newer, which is not here")
    hands = environment("openhands", client, python)
    report = tmp_path / "report.xml"
    options = (f"--config-file={PROGRAMS / 'pytest.ini'}", "--noconftest", f"--junit-xml={report}")
    where = f"{plane.url}/compat/openhands/{session['id']}"
    done = await asyncio.to_thread(
        hands.run,
        *("-m", "pytest", "--import-mode=importlib", *options, PROGRAMS / "trials_openhands.py"),
        cwd=tmp_path,
        seconds=_SECONDS,
        variables={"OPENHANDS_URL": where, "OPENHANDS_KEY": session["handle"]},
    )
    assert done.returncode in (0, 1), done.stdout[-4000:] + done.stderr[-4000:]
    print(done.stdout[-20_000:])
    found = of_junit(report)
    keep(judged(found, {}, suite="trials: a workspace", **OF_ALL))
