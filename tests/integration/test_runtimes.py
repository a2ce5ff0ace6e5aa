"""Levels in sandboxes whose agents find what gVisor offers: filters that report nothing.

The runtime is runc, named by a level. An image takes the facilities away from its agents.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from api.views.facilities import facilities_of
from orchestrator.control_plane import ControlPlane
from orchestrator.host.node.requirements import UnmetError
from orchestrator.rules.policy import levels
from orchestrator.state.requests import NewSession
from orchestrator.state.terms import Terms
from paddock.contract.words import LEVEL_NAMES
from tests.support.box import TESTER, Box, status_of
from tests.support.leaks import left_behind
from tests.support.older_kernels import older_image
from tests.support.plane import opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

RUNTIME = "runc"
RUNSC = ("notification", "paths", "undisturbed", "mdwe")
WITHOUT = ("paths", "notification", "scopes")
PACKAGED = Path(levels.__file__).with_name("levels")
# A thread that names itself by its number, another process's limits, and a mount.
CALLS = """
import ctypes, errno, os, resource, threading
libc = ctypes.CDLL(None, use_errno=True)
def said(done):
    return "well" if done == 0 else errno.errorcode[ctypes.get_errno()]
print(said(libc.prlimit(0, 7, None, None)))
print(said(libc.prlimit(os.getpid(), 7, None, None)))
print(said(libc.prlimit(int(os.environ["OTHER"]), 7, None, None)))
print(said(libc.mount(b"none", b"/tmp", b"tmpfs", 0, None)))
print(said(libc.unshare(0x10000000)))
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(
    sandbox_image: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ControlPlane]:
    directory = tmp_path_factory.mktemp("levels")
    text = (PACKAGED / "high.toml").read_text()
    text = text.replace("rank = 300", f'rank = 400\nruntime = "{RUNTIME}"')
    text = text.replace("mounts = true", f"mounts = true\nwithout = {list(WITHOUT)}")
    text = text.replace("paths = false", "paths = false\nrecord_execs = false")
    (directory / "guest.toml").write_text(text)
    with older_image(sandbox_image, RUNSC) as image:
        async with opened(image=image, levels_dir=directory, runtime=RUNTIME) as plane:
            await plane.sandboxes.agents.directory()  # its container is gone when tests begin
            yield plane


@pytest.mark.parametrize("level", LEVEL_NAMES)
async def test_the_packaged_levels_are_refused(plane: ControlPlane, level: str) -> None:
    before = left_behind(plane.settings.state_dir)
    request = NewSession(permission_level=level, terms=Terms(image=plane.settings.image))
    told = (
        f"level {level} can't be enforced in a sandbox of this engine under its runtime {RUNTIME}: "
    )
    with pytest.raises(UnmetError) as caught:
        await plane.sessions.create(TESTER, request)
    assert caught.value.detail.startswith(f"{told}needs Landlock version 1, but found none; ")
    assert left_behind(plane.settings.state_dir) == before


async def test_a_level_that_goes_without_is_confined_otherwise(plane: ControlPlane) -> None:
    box = await Box.create(plane, "guest")
    sandbox = box.session.check_open()
    assert sandbox.runtime == RUNTIME
    shown = facilities_of(box.session, plane.node.kernel) or []
    assert {each.name for each in shown if not each.provided} == set(WITHOUT)

    other = await box.start("cat", stdin="up", stdin_open=True)
    await box.printed(other, "up")
    status = status_of(box.process(["cat"]))
    number = status["NSpid"].split()[-1]
    done = await box.run(argv=["python3", "-c", CALLS], env={"OTHER": number})
    assert done.stdout.split() == ["well", "EPERM", "EPERM", "EPERM", "EPERM"], done.stderr
    await box.feed(other, b"", close=True)
    await box.finish(other)

    # A tree of processes ends with its command.
    done = await box.bash("sleep 1000 & echo started", timeout=60)
    assert done.stdout == "started\n"
    assert box.processes() == []
    events = [event["operation"] for event in await box.events()]
    assert "process.exec" not in events
    await box.close()
