"""The same attacks where the kernel lacks facilities, so that their substitutes stop them.

The tests that are imported run here once more, with the sessions of this module.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from tests.security.test_context_packs import (
    packed,
    test_commands_read_the_files_of_the_pack_only,
    test_no_file_that_may_not_be_written_is_truncated,
)
from tests.security.test_execution import (
    test_code_in_a_file,
    test_code_in_shared_memory,
    test_code_of_ones_own,
    test_own_code_overwritten,
    test_program_of_ones_own,
)
from tests.security.test_reading import test_secret_of_the_image
from tests.security.test_resources import test_daemons, test_fork_bomb
from tests.security.test_writing import test_file_of_the_image
from tests.support.arsenal import Arsenal
from tests.support.attack import Attacks, write_armed_levels
from tests.support.older_kernels import LEAST, older_host, older_image
from tests.support.plane import opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

AGAIN = (
    packed,
    test_no_file_that_may_not_be_written_is_truncated,
    test_commands_read_the_files_of_the_pack_only,
    test_code_in_a_file,
    test_code_in_shared_memory,
    test_code_of_ones_own,
    test_own_code_overwritten,
    test_program_of_ones_own,
    test_daemons,
    test_fork_bomb,
    test_secret_of_the_image,
    test_file_of_the_image,
)


@pytest.fixture(scope="module")
def levels_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("levels")
    write_armed_levels(directory)
    return directory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def control_plane(arsenal: Arsenal, levels_dir: Path) -> AsyncIterator[ControlPlane]:
    with older_image(arsenal.image, LEAST) as image, older_host(LEAST):
        async with opened(image=image, levels_dir=levels_dir) as plane:
            yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def attacks(arsenal: Arsenal, control_plane: ControlPlane) -> Attacks:
    return Attacks(control_plane, arsenal)
