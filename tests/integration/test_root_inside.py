"""A level whose commands are root inside: uid 0 of a namespace that maps to the workspace's uid."""

import ensurepip
import io
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from api.views.facilities import facilities_of
from api.views.levels import level
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import SandboxUnavailableError, ValidationError
from orchestrator.host.engine import docker_records, docker_spec
from orchestrator.host.workspace.mounts import MountError
from orchestrator.operate.checks.inside import looking
from orchestrator.operate.checks.root_inside import check_root_inside
from orchestrator.state.pack import Pack
from paddock import Paddock
from paddock.contract.pack_form import ToolClass
from tests.support.box import TESTER, Box
from tests.support.leaks import left_behind
from tests.support.limits import PROGRAM_SECONDS
from tests.support.plane import opened
from tests.support.root_levels import LEVEL, write_root_level
from tests.support.server import leaving_nothing

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
adduser --system --no-create-home --group tiny
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


async def test_a_wheel_is_installed(layered: Box) -> None:
    (pip,) = (Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl")
    await layered.write(pip.name, pip.read_bytes())
    await layered.write("tiny_wheel-1-py3-none-any.whl", wheel())
    words = ["install", "--no-index", "--root-user-action=ignore", "--break-system-packages"]
    done = await layered.run(
        argv=["python3", f"{pip.name}/pip", *words, "./tiny_wheel-1-py3-none-any.whl"]
    )
    assert done.exit_code == 0, (done.stdout, done.stderr)
    done = await layered.run(argv=["python3", "-c", "import tiny_wheel; print(tiny_wheel.SAYS)"])
    assert done.stdout == "installed\n"


def wheel() -> bytes:
    """A package of one module."""
    facts = "tiny_wheel-1.dist-info"
    files = {
        "tiny_wheel.py": 'SAYS = "installed"\n',
        f"{facts}/METADATA": "Metadata-Version: 2.1\nName: tiny-wheel\nVersion: 1\n",
        f"{facts}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{facts}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{facts}/RECORD"))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return buffer.getvalue()


async def test_the_layer_is_the_sandboxs_own(plane: ControlPlane, layered: Box) -> None:
    """What is written over the image ends with the sandbox, and the workspace stays."""
    box = await Box.create(plane, LAYERED)
    done = await box.bash("echo x > /usr/local/mine; echo x > mine; cat /usr/local/mine")
    assert done.stdout == "x\n"
    assert (await layered.bash("cat /usr/local/mine")).exit_code == 1
    await box.plane.sessions.close(TESTER, box.session, purge=False)
    again = await Box.create(plane, LAYERED, id=box.session.id)
    assert (await again.bash("cat mine; cat /usr/local/mine")).stdout == "x\n"
    await again.close()


async def test_what_is_in_force_is_told(plane: ControlPlane, layered: Box) -> None:
    (means,) = [
        each
        for each in facilities_of(layered.session, plane.node.kernel) or []
        if each.name == "root"
    ]
    assert means.provided
    assert str(LAYER_BYTES) in means.detail
    assert plane.runtimes.without_root[LAYERED] is None
    shown = level(
        plane.levels[LAYERED],
        allowed=True,
        rule=None,
        without_root=plane.runtimes.without_root,
    )
    assert (shown.user, shown.root_bytes, shown.root_in_force) == ("root", LAYER_BYTES, True)


async def test_a_profile_that_forbids_it_refuses_the_session(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the engine's own profile of system calls, as under AppArmor's or a kernel's setting."""
    before = left_behind(plane.settings.state_dir)
    with monkeypatch.context() as patch:
        patch.setattr(docker_spec, "security_options", lambda **_: ["no-new-privileges"])
        with pytest.raises(SandboxUnavailableError) as caught:
            await Box.create(plane, LEVEL)
    assert "commands can't be root inside: the engine's profile of system" in caught.value.detail
    assert caught.value.detail == plane.runtimes.without_root[LEVEL]
    assert left_behind(plane.settings.state_dir) == before
    box = await Box.create(plane, LEVEL)
    assert plane.runtimes.without_root[LEVEL] is None
    await box.close()


async def test_an_engine_without_visible_layers_refuses_the_session(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = left_behind(plane.settings.state_dir)
    with monkeypatch.context() as patch:
        patch.setattr(docker_records, "_layers", lambda _driver: ())
        with pytest.raises(MountError, match="the storage driver overlay2 does"):
            await Box.create(plane, LAYERED)
    assert left_behind(plane.settings.state_dir) == before


async def test_a_pack_is_refused(plane: ControlPlane) -> None:
    pack = Pack("fix", f"sha256:{'0' * 64}", tools=frozenset(ToolClass), commands=("*",))
    with pytest.raises(ValidationError, match="its commands are root inside") as caught:
        await Box.create(plane, LEVEL, consume=pack)
    assert caught.value.fields["field"] == "permission_level"


async def test_the_doctor_tries_it(plane: ControlPlane) -> None:
    async with looking(plane.settings, plane.node.engine) as looks:
        checks = await check_root_inside(
            plane.node.engine,
            looks.root_inside,
            plane.settings,
            plane.levels.values(),
            float(PROGRAM_SECONDS),
        )
    assert [(each.name, each.ok) for each in checks] == [
        ("root inside", True),
        ("writable layer", True),
    ]


async def test_over_http_with_shells_cells_and_a_killed_server(
    sandbox_image: str, tmp_path: Path
) -> None:
    """Every way in is root inside; the session survives its server, and nothing is left of it."""
    write_root_level(tmp_path, f"root_bytes = {LAYER_BYTES}", network="egress")
    members = {"PADDOCK_IMAGE": sandbox_image, "PADDOCK_LEVELS_DIR": str(tmp_path)}
    async with leaving_nothing(**members) as server:
        async with Paddock(server.url, server.key) as paddock:
            session = await paddock.sessions.create(permission_level=LEVEL)
            shell = await session.shells.create("main")
            assert (await shell.run("id -u; touch /usr/of-the-shell")).output == "0\n"
            found = await session.run_code("import os; print(os.getuid(), os.getgroups())")
            assert found.stdout == "0 []\n"
            await session.files.write("by-the-api", b"x")
            done = await session.exec("stat -c %u by-the-api /usr/of-the-shell")
            assert done.stdout == "0\n0\n"
            refused = await session.exec(argv=["sh", "-c", "touch /boot/x"])
            assert refused.exit_code != 0
            levels = await paddock.policies.list()
            (shown,) = [each for each in levels if each.name == LEVEL]
            assert (shown.user, shown.root_in_force, shown.root_refused) == ("root", True, None)
        await server.kill()
        await server.start()
        async with Paddock(server.url, server.key) as paddock:
            again = await paddock.sessions.get(session.id)
            done = await again.exec(argv=["sh", "-c", "id -u; ls /usr/of-the-shell"])
            assert done.stdout == "0\n/usr/of-the-shell\n"
            await again.close(purge=True)
