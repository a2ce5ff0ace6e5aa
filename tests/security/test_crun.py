"""The same confinement, and the same attacks, in sandboxes under another runtime: crun.

The tests that are imported run here once more, with the sessions of this module: the packaged
levels with a runtime of their own.
"""

from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import docker
import pytest
import pytest_asyncio

from api.views.facilities import facilities_of
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import SandboxUnavailableError
from orchestrator.ground.limits import KeyLimits
from orchestrator.rules.policy import levels as level_files
from orchestrator.state.volume_use import VolumeUse
from paddock.contract.words import LEVEL_NAMES
from tests.conftest import BoxFactory
from tests.security.test_confinement import (
    box,
    test_a_command_has_no_privileges,
    test_limits_are_as_the_engine_reports_them,
    test_mounts_are_as_the_level_says,
    test_no_command_spares_itself_when_memory_runs_out,
    test_root_cannot_be_had_again,
    test_the_agent_has_only_what_it_needs,
    test_there_is_no_network,
)
from tests.security.test_execution import test_forbidden_program, test_program_of_ones_own
from tests.security.test_isolation import (
    test_a_command_is_out_of_reach_of_another,
    test_sessions_do_not_see_each_other,
    test_the_agent_is_out_of_reach,
    test_the_control_socket_is_out_of_reach,
    test_the_kernel_does_not_tell_of_other_workspaces,
)
from tests.security.test_reading import test_secret_of_the_image
from tests.security.test_system_calls import test_denied_call, test_network, test_privilege
from tests.security.test_writing import test_file_of_the_image
from tests.support.arsenal import Arsenal
from tests.support.attack import Attacks, write_armed_levels
from tests.support.attempts import attempt
from tests.support.box import TESTER, Box, mount_options
from tests.support.leaks import left_behind
from tests.support.plane import opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

AGAIN = (
    box,
    test_a_command_has_no_privileges,
    test_a_command_is_out_of_reach_of_another,
    test_denied_call,
    test_file_of_the_image,
    test_forbidden_program,
    test_limits_are_as_the_engine_reports_them,
    test_mounts_are_as_the_level_says,
    test_network,
    test_no_command_spares_itself_when_memory_runs_out,
    test_privilege,
    test_program_of_ones_own,
    test_root_cannot_be_had_again,
    test_secret_of_the_image,
    test_sessions_do_not_see_each_other,
    test_the_agent_has_only_what_it_needs,
    test_the_agent_is_out_of_reach,
    test_the_control_socket_is_out_of_reach,
    test_the_kernel_does_not_tell_of_other_workspaces,
    test_there_is_no_network,
)
PACKAGED = Path(level_files.__file__).with_name("levels")


@pytest.fixture(scope="module")
def levels_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with closing(docker.APIClient(version="auto")) as client:
        if "crun" not in client.info()["Runtimes"]:
            pytest.skip("the engine has no runtime crun: `make crun`")
    directory = tmp_path_factory.mktemp("levels")
    write_armed_levels(directory)
    for name in LEVEL_NAMES:
        path = directory / f"{name}.toml"
        text = (path if path.exists() else PACKAGED / path.name).read_text()
        path.write_text(f'runtime = "crun"\n{text}')
    flagless = path.read_text().replace("rank = 300", "rank = 400")
    flagless = flagless.replace("mounts = true", 'mounts = true\nwithout = ["flags"]')
    (directory / "flagless.toml").write_text(flagless)
    return directory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def control_plane(arsenal: Arsenal, levels_dir: Path) -> AsyncIterator[ControlPlane]:
    async with opened(image=arsenal.image, levels_dir=levels_dir) as plane:
        yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def attacks(arsenal: Arsenal, control_plane: ControlPlane) -> Attacks:
    return Attacks(control_plane, arsenal)


@pytest.mark.parametrize("level", LEVEL_NAMES)
async def test_the_engine_used_it(new_box: BoxFactory, level: str) -> None:
    box: Box = await new_box(level)
    assert (await box.container()).runtime == "crun"
    found = box.session.check_open()
    assert found.runtime == "crun"
    assert found.link.hello is not None
    runtimes = box.plane.runtimes
    assert runtimes.found["crun"] == found.link.hello.kernel == box.plane.node.kernel
    assert (await box.run("pwd")).stdout == "/workspace\n"
    assert "ro" in mount_options(box.agent())["/opt/paddock"]
    await box.close()


@attempt("a mount that is read-only", layer="mounts", levels="high")
async def test_what_is_read_only_stays_so(control_plane: ControlPlane) -> None:
    """The runtime itself mounts it for writing, and the flags are set afterwards."""
    shown = await control_plane.volumes.create(TESTER, "kept", 32 * 2**20, KeyLimits())
    data = control_plane.node.storage.data(shown.volume.files)
    box = await Box.create(control_plane, "high", volumes=(VolumeUse("kept", "/kept", True),))
    assert mount_options(box.agent())["/kept"] >= {"ro", "nosuid", "nodev"}
    done = await box.bash("echo x > /kept/file")
    assert "Read-only file system" in done.stderr
    assert list(data.iterdir()) == []
    await box.close()


async def test_a_sandbox_whose_flags_are_lost_is_refused(
    control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.host.node.local_node.restore", lambda *_: None)
    before = left_behind(control_plane.settings.state_dir)
    told = "the runtime has mounted /workspace without nosuid, nodev, noexec"
    with pytest.raises(SandboxUnavailableError, match=told):
        await Box.create(control_plane, "low")
    assert left_behind(control_plane.settings.state_dir) == before

    # A level of the operator's may go without them, and says so. What is read-only stays so.
    box = await Box.create(control_plane, "flagless")
    assert "nosuid" not in mount_options(box.agent())["/workspace"]
    shown = facilities_of(box.session, control_plane.node.kernel) or []
    assert [each.name for each in shown if not each.provided] == ["flags"]
    await box.close()
    await control_plane.volumes.create(TESTER, "read", 32 * 2**20, KeyLimits())
    with pytest.raises(SandboxUnavailableError, match="has mounted /kept without read-only"):
        await Box.create(control_plane, "flagless", volumes=(VolumeUse("read", "/kept", True),))
