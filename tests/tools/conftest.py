"""The real programs, their servers, and a control plane with manifests for them."""

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.rules.policy import levels
from orchestrator.settings.operator_mounts import OperatorMount
from tests.support.manifests import PSQL
from tests.support.plane import opened
from tests.support.programs import postgresql, programs_image, redis
from tests.support.real_tool import edited, loose, manifest

LOOSE = ("gdb", "node", "psql", "python3", "redis-cli")


@pytest.fixture(scope="session")
def image() -> Iterator[str]:
    """The sandbox image with the programs."""
    with programs_image() as name:
        yield name


@pytest.fixture(scope="session")
def servers(image: str) -> Iterator[dict[str, Path]]:
    """The directories that contain the servers' sockets."""
    with postgresql(image) as postgresql_dir, redis(image) as redis_dir:
        yield {"postgresql": postgresql_dir, "redis": redis_dir}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(
    image: str, servers: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ControlPlane]:
    """A control plane with loose manifests too, and a level `debug`: high with ptrace."""
    tools, levels_dir = tmp_path_factory.mktemp("tools"), tmp_path_factory.mktemp("levels")
    (tools / "psql.clad.toml").write_text(manifest("psql"))
    shutil.copy(PSQL, tools)
    for name in LOOSE:
        (tools / f"loose-{name}.clad.toml").write_text(loose(name))
    for name, text in edited().items():
        (tools / f"{name}.clad.toml").write_text(text)
    high = (Path(levels.__file__).with_name("levels") / "high.toml").read_text()
    debug = high.replace("rank = 300", "rank = 310")
    debug = debug.replace("[confinement]", "[confinement]\nptrace = true")
    (levels_dir / "debug.toml").write_text(debug)
    mounts = {
        name: OperatorMount(source=str(directory), target=f"/run/{name}")
        for name, directory in servers.items()
    }
    settings = {"mounts": mounts, "tools_dir": tools, "levels_dir": levels_dir}
    async with opened(image=image, **settings) as plane:
        yield plane
