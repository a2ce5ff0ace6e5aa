"""A level whose commands are root inside: uid 0 of a namespace that maps to the workspace's uid."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from tests.support.box import Box
from tests.support.plane import opened
from tests.support.root_levels import LEVEL, write_root_level

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(
    sandbox_image: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ControlPlane]:
    directory = tmp_path_factory.mktemp("levels")
    write_root_level(directory)
    async with opened(image=sandbox_image, levels_dir=directory) as plane:
        yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(plane: ControlPlane) -> AsyncIterator[Box]:
    box = await Box.create(plane, LEVEL)
    yield box
    await box.close()


async def test_commands_are_root_and_their_files_the_workspaces(box: Box) -> None:
    done = await box.bash("id -u; id -g; echo $USER; mkdir made; echo x > made/file")
    assert done.stdout.split() == ["0", "0", "root"]
    status = (box.workspace / "made/file").stat()
    assert status.st_uid == status.st_gid == box.session.workspace.uid != 0


async def test_other_owners_are_not_kept(box: Box) -> None:
    """An archive's files of others are unpacked as one's own, and programs are not told."""
    done = await box.bash(
        "touch file && chown 33:33 file && chown -h :42 file && chgrp 5 file && stat -c %u:%g file"
    )
    assert (done.exit_code, done.stdout) == (0, "0:0\n")
