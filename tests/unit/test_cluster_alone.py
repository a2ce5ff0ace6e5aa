"""One machine alone needs nothing of a cluster."""

import subprocess
import sys

import pytest

from tests.support.limits import PROGRAM_SECONDS

CLUSTERS = ("asyncpg", "gateway", "orchestrator.cluster.postgres")


@pytest.mark.parametrize("module", ["orchestrator.control_plane", "api.server", "paddock.cli"])
def test_without_a_cluster_nothing_of_one_is_imported(module: str) -> None:
    code = (
        f"import sys, {module}\n"
        f"found = [name for name in sys.modules for each in {CLUSTERS!r}"
        " if name == each or name.startswith(each + '.')]\n"
        "print(found)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS,
        check=True,
    )
    assert done.stdout.strip() == "[]"
