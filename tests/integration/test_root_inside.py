"""A level whose commands are root inside: uid 0 of a namespace that maps to the workspace's uid."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from tests.support.box import Box
from tests.support.plane import opened
from tests.support.root_levels import LEVEL, write_root_level

LAYERED = "layered"
LAYER_BYTES = 128 * 1024 * 1024
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(
    sandbox_image: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ControlPlane]:
    directory = tmp_path_factory.mktemp("levels")
    write_root_level(directory)
    write_root_level(directory, f"root_bytes = {LAYER_BYTES}", name=LAYERED, rank=401)
    async with opened(image=sandbox_image, levels_dir=directory) as plane:
        yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(plane: ControlPlane) -> AsyncIterator[Box]:
    box = await Box.create(plane, LEVEL)
    yield box
    await box.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def layered(plane: ControlPlane) -> AsyncIterator[Box]:
    box = await Box.create(plane, LAYERED)
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


PACKAGE = """
set -e
mkdir -p tree/DEBIAN tree/usr/bin tree/etc
cat > tree/DEBIAN/control <<END
Package: tiny
Version: 1
Architecture: all
Maintainer: nobody <nobody@example.com>
Description: a program and a user of its own
END
cat > tree/DEBIAN/postinst <<END
#!/bin/sh
set -e
id tiny || useradd --system --no-create-home tiny
install -o tiny -g tiny -m 0600 /dev/null /var/lib/tiny
END
chmod 755 tree/DEBIAN/postinst
printf '#!/bin/sh\\necho installed\\n' > tree/usr/bin/tiny-program
chmod 4755 tree/usr/bin/tiny-program
dpkg-deb --build tree tiny.deb
"""


async def test_a_package_is_installed(layered: Box) -> None:
    done = await layered.bash(PACKAGE)
    assert done.exit_code == 0, done.stderr
    done = await layered.run(argv=["dpkg", "-i", "tiny.deb"])
    assert done.exit_code == 0, (done.stdout, done.stderr)
    done = await layered.run("tiny-program")
    assert (done.exit_code, done.stdout) == (0, "installed\n")
    done = await layered.bash("apt-get remove -y tiny && apt-get install -y ./tiny.deb")
    assert done.exit_code == 0, (done.stdout, done.stderr)
    done = await layered.bash("id tiny; tiny-program; ls -ln /usr/bin/tiny-program /var/lib/tiny")
    assert done.exit_code == 0, (done.stdout, done.stderr)
