"""Sessions in images that have nothing of Paddock's: no agent, no Python, perhaps no C library."""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest
import pytest_asyncio

from images.foreign import check
from orchestrator.control_plane import ControlPlane
from tests.support.box import Box
from tests.support.foreign_images import busybox, debian_without_python, imported, musl
from tests.support.plane import clear, running, state

pytestmark = pytest.mark.asyncio(loop_scope="module")

LEVELS = ("low", "medium", "high")
# All that a container would take from the image.
CHANGES = (
    'ENTRYPOINT ["/bin/echo", "entry point"]',
    'CMD ["command"]',
    "USER 1234:1234",
    "WORKDIR /somewhere",
    "ENV PATH=/opt/tools:/bin LD_PRELOAD=/bin/none.so GREETING=hello",
    "ENV HOME=/root http_proxy=http://proxy.invalid LANG=C",
    'VOLUME ["/data", "/data/below", "/workspace", "/tmp"]',
    "HEALTHCHECK --interval=1s CMD /bin/false",
)


class Foreign(NamedTuple):
    """A control plane that may use each of these images, by their kind."""

    plane: ControlPlane
    names: dict[str, str]

    async def box(self, kind: str, level: str) -> Box:
        return await Box.create(self.plane, level, image=self.names[kind])


@pytest.fixture(scope="module")
def images(
    sandbox_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    every = busybox()
    every.file("opt/tools/greet", b"#!/bin/sh\necho greeted $GREETING\n")
    every.file("data/file", b"of the image\n", 0o644)
    every.file("bin/set", b"#!/bin/sh\nid -u\n", 0o4755)
    with ExitStack() as stack:
        yield {
            "busybox": stack.enter_context(imported(busybox().data())),
            "debian": stack.enter_context(imported(debian_without_python(sandbox_image))),
            "musl": stack.enter_context(imported(musl(tmp_path_factory.mktemp("musl")).data())),
            "every": stack.enter_context(imported(every.data(), CHANGES)),
        }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def foreign(sandbox_image: str, images: dict[str, str]) -> AsyncIterator[Foreign]:
    """The images are checked as `paddock images add` does it."""
    with state(image=sandbox_image, images=tuple(images.values())) as settings:
        async with running(settings) as plane:
            for name in images.values():
                await check(name, settings, plane.levels.values())
            yield Foreign(plane, images)
            await clear(plane)


async def test_a_scratch_image_runs_its_programs(foreign: Foreign) -> None:
    box = await foreign.box("busybox", "high")
    said = await box.run("echo hello")
    assert (said.exit_code, said.stdout) == (0, "hello\n")
    said = await box.run(argv=["sh", "-c", "echo here > file; cat file; ls /usr"])
    assert (said.exit_code, said.stdout) == (1, "here\n")
