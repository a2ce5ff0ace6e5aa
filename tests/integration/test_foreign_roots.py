"""Roots of other layouts: /usr not merged, names of an older glibc, and very many files."""

import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from images.foreign import check
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import PermissionDeniedError
from orchestrator.host.engine import docker_agent
from orchestrator.sandbox.images.image_facts import ImageFacts
from orchestrator.settings.settings import Settings
from tests.support.box import Box
from tests.support.foreign_images import (
    busybox,
    debian_without_python,
    glibc_2_31,
    imported,
    unmerged,
)
from tests.support.plane import clear, running, state

pytestmark = pytest.mark.asyncio(loop_scope="module")

KINDS = {"unmerged": unmerged, "glibc 2.31": glibc_2_31}
FILES, FOLDERS = 50_000, 500
MIB = 2**20


class Roots(NamedTuple):
    """A control plane that may use these images, and what was found in each."""

    plane: ControlPlane
    names: dict[str, str]
    facts: dict[str, ImageFacts]


@pytest.fixture(scope="module")
def images(sandbox_image: str) -> Iterator[dict[str, str]]:
    with ExitStack() as stack:
        yield {
            kind: stack.enter_context(imported(debian_without_python(sandbox_image, place)))
            for kind, place in KINDS.items()
        }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def roots(sandbox_image: str, images: dict[str, str]) -> AsyncIterator[Roots]:
    with state(image=sandbox_image, images=tuple(images.values())) as settings:
        async with running(settings) as plane:
            levels = plane.levels.values()
            found = {kind: await check(name, settings, levels) for kind, name in images.items()}
            yield Roots(plane, images, found)
            await clear(plane)


async def test_programs_and_libraries_are_where_they_were(roots: Roots) -> None:
    found = roots.facts["unmerged"]
    assert found.programs["ls"] == "/bin/ls"
    assert found.programs["wc"] == "/usr/bin/wc"
    box = await Box.create(roots.plane, "high", image=roots.names["unmerged"])
    listed = (await box.run(argv=["find", "/bin", "/lib", "-maxdepth", "0", "-type", "d"])).stdout
    assert listed == "/bin\n/lib\n"
    box = await Box.create(roots.plane, "high", image=roots.names["glibc 2.31"])
    libc = await box.bash("readlink /lib/*-linux-gnu/libc.so.6 /lib/*-linux-gnu/ld-linux*.so*")
    assert libc.stdout.split() == ["libc-2.31.so", "ld-2.31.so"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", ["low", "medium", "high"])
async def test_each_level_has_its_programs(roots: Roots, kind: str, level: str) -> None:
    known = roots.plane.levels[level]
    assert roots.facts[kind].problem(known) is None
    assert set(roots.facts[kind].missing(known)) <= {"neofetch"}
    box = await Box.create(roots.plane, level, image=roots.names[kind])
    await box.write("file", b"content\n")
    for line, printed in {
        "cat file": "content\n",
        "grep -c content file": "1\n",
        "find . -name file": "./file\n",
        "wc -c file": "8 file\n",
    }.items():
        assert (await box.run(line)).stdout == printed, line
    for line in ("mkdir new", "cp file new/", "mv new/file new/moved", "rm -r new", "stat file"):
        done = await box.run(line)
        assert done.exit_code == 0, (line, done.stderr)
    if level != "low":
        assert "curl" in (await box.run("curl --version")).stdout
    if level != "high":
        with pytest.raises(PermissionDeniedError):
            await box.run("bash -c ls")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_line_of_a_shell(roots: Roots, kind: str) -> None:
    box = await Box.create(roots.plane, "high", image=roots.names[kind])
    assert (await box.run(shell="echo a b | wc -w")).stdout.strip() == "2"


async def test_very_many_files_are_looked_at_in_little_memory(
    sandbox_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more files than it looks at, or more time, it ends: `tests/unit/test_image_look.py`."""
    root = busybox()
    for folder in range(FOLDERS):
        for number in range(FILES // FOLDERS):
            root.file(f"data/{folder}/{number}", b"", 0o4755 if number == 0 else 0o644)
    usual = docker_agent._config

    def small(image: str, instance: str) -> dict[str, object]:
        config = usual(image, instance)
        config["HostConfig"] |= {"Memory": 32 * MIB, "MemorySwap": 32 * MIB}
        return config

    settings = Settings(state_dir=tmp_path, image=sandbox_image)
    with imported(root.data()) as name:
        # The agent is made first, which takes more.
        await check(name, settings, [])
        monkeypatch.setattr(docker_agent, "_config", small)
        found = await check(name, settings, [])
    assert found.entries > FILES
    assert found.whole
    assert found.setuid_count == FOLDERS
    assert len(found.setuid) < FOLDERS
    assert len(found.model_dump_json()) < MIB
    (record,) = (tmp_path / "image-facts").iterdir()
    assert stat.S_ISREG(record.stat().st_mode)
