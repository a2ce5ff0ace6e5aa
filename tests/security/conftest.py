"""Sessions under attack: an image with attack programs, and levels that allow them by name."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from images.foreign import check
from tests.support.arsenal import Arsenal, build_arsenal, remove_image
from tests.support.attack import INSIDE, Attacks, assert_well, write_armed_levels
from tests.support.attempts import parametrize
from tests.support.box import Box
from tests.support.foreign_images import debian_without_python, imported
from tests.support.plane import opened


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc)


@pytest.fixture(scope="session")
def arsenal(sandbox_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arsenal]:
    """The attack programs in a separate image, with a new secret."""
    made = build_arsenal(sandbox_image, tmp_path_factory.mktemp("programs"))
    yield made
    remove_image(made.image)


@pytest.fixture(scope="session")
def foreign_arsenal(
    sandbox_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Arsenal]:
    """The same programs in a Debian without Python and without an agent."""
    with imported(debian_without_python(sandbox_image)) as base:
        made = build_arsenal(base, tmp_path_factory.mktemp("foreign"))
        yield made
        remove_image(made.image)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def attacks(
    arsenal: Arsenal, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Attacks]:
    """A control plane whose levels allow the attack programs by name."""
    directory = tmp_path_factory.mktemp("levels")
    write_armed_levels(directory)
    async with opened(image=arsenal.image, levels_dir=directory) as plane:
        yield Attacks(plane, arsenal)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def foreign_attacks(
    sandbox_image: str, foreign_arsenal: Arsenal, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Attacks]:
    """The same with the mounted agent, in an image that is none of Paddock's."""
    directory, image = tmp_path_factory.mktemp("levels"), foreign_arsenal.image
    write_armed_levels(directory)
    async with opened(image=sandbox_image, images=(image,), levels_dir=directory) as plane:
        await check(image, plane.settings, plane.levels.values())
        yield Attacks(plane, foreign_arsenal, image)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain(arsenal: Arsenal) -> AsyncIterator[dict[str, Box]]:
    """A session at each packaged level, with links that lead out of its workspace."""
    async with opened(image=arsenal.image) as plane:
        found = {level: await Box.create(plane, level) for level in ("low", "medium", "high")}
        for box in found.values():
            await box.write("file", INSIDE)
            await box.mkdir("sub")
            (box.workspace / "link").symlink_to("/usr/share/canary")
            (box.workspace / "directory").symlink_to("/usr/share")
        yield found
        for box in found.values():
            await assert_well(box)
