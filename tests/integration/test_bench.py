"""A contender's process does what is measured, and removes its sandboxes at its end."""

import sys
from contextlib import closing
from pathlib import Path

import docker
import pytest
from docker.errors import NotFound

from tests.bench.peers.contender import ContenderError, contending
from tests.bench.peers.driver import Options
from tests.support.limits import WAIT_SECONDS


async def test_each_operation_of_a_contender(sandbox_image: str, tmp_path: Path) -> None:
    file, tree = tmp_path / "file", tmp_path / "tree"
    file.write_text("text")
    (tree / "a").mkdir(parents=True)
    (tree / "a" / "b").write_text("text")
    options = Options(sandbox_image)
    async with contending("Docker", "docker", Path(sys.executable), options) as contender:
        for operation, arguments, figures in (
            ("create", {}, 2),
            ("run_true", {"times": 2, "seconds": WAIT_SECONDS}, 2),
            ("run_at_once", {"in_flight": 2, "seconds": 0}, 2),
            ("lines", {"times": 2, "seconds": WAIT_SECONDS}, 2),
            ("send_file", {"path": str(file)}, 1),
            ("fetch_file", {"path": str(file)}, 1),
            ("send_tree", {"path": str(tree)}, 1),
            ("fetch_tree", {"path": str(tree)}, 1),
        ):
            assert len(await contender.ask(operation, **arguments) or []) == figures, operation
        [container] = await contender.ask("containers") or []
        file.write_text("another")
        with pytest.raises(ContenderError, match="the fetched file is what was sent"):
            await contender.ask("fetch_file", path=str(file))
    with closing(docker.APIClient(version="auto")) as client, pytest.raises(NotFound):
        client.inspect_container(container)
