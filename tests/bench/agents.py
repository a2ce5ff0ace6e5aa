"""What the mounted agent costs a start, beside one that is in the image."""

import io
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from images.builder import build
from orchestrator.host.engine import docker_spec
from orchestrator.host.engine.base import Image, MountedAgent
from orchestrator.sandbox.images.mounted_agents import MountedAgents, read_code
from sandbox_agent.decide.mounted_agent import PLACE
from tests.bench.memory import resident
from tests.bench.report import Result, compare
from tests.bench.rounds import alternating, percentile
from tests.support.arsenal import build_image, remove_image
from tests.support.box import Box
from tests.support.plane import opened

_LEVEL = "low"
_MIB = 1024 * 1024
_COMMAND = ("/usr/bin/python3", "-I", "-S", PLACE)
_DOCKERFILE = f"""\
FROM {{base}}
ADD root.tar /
RUN python3 -m compileall -q -f --invalidation-mode unchecked-hash {PLACE}
"""


async def agents(rounds: int) -> list[Result]:
    """Starts of sessions without sandboxes that wait, and the agents' memory after a command."""
    usual = build().name
    with baked(usual) as image, _as_it_was(image):
        async with opened(image=usual, images=(image,)) as plane:
            memory: dict[str, list[float]] = {usual: [], image: []}

            async def start(which: str) -> Sequence[float]:
                began = time.perf_counter()
                box = await Box.create(plane, _LEVEL, image=which)
                taken = time.perf_counter() - began
                await box.run("ls")
                memory[which].append(resident(box.agent().pid).now / _MIB)
                await box.close()
                return [taken]

            mounted, built_in = await alternating(
                rounds, partial(start, usual), partial(start, image)
            )
    ours, theirs = memory[usual], memory[image]
    ratio = percentile(ours, 0.5) / percentile(theirs, 0.5)
    return [
        compare("start, the agent mounted", mounted, "in the image", built_in, at_most=1.05),
        Result("memory of a mounted agent", ours, "MiB", "in the image", theirs, ratio, 1.05),
    ]


@contextmanager
def baked(base: str) -> Iterator[str]:
    """An image with the agent in it, which its own Python runs."""
    files = {f"{PLACE}/{name}": content for name, content in read_code().items()}
    files[f"{PLACE}/__main__.py"] = files[f"{PLACE}/sandbox_agent/__main__.py"]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name.lstrip("/"))
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    image = build_image("baked", _DOCKERFILE.format(base=base), packed.getvalue())
    try:
        yield image
    finally:
        remove_image(image)


@contextmanager
def _as_it_was(image: str) -> Iterator[None]:
    """Containers of that image have nothing mounted at the agent's place."""
    mounted, mounts = MountedAgents.mounted, docker_spec.agent_mounts

    async def of_image(
        self: MountedAgents, found: Image, hidden: tuple[str, ...] = ()
    ) -> MountedAgent:
        engines = await self._engine.image(image)
        if engines is not None and engines.id == found.id:
            return MountedAgent("", _COMMAND)
        return await mounted(self, found, hidden)

    def none_of_it(agent: MountedAgent) -> list[dict[str, Any]]:
        return mounts(agent) if agent.directory else []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MountedAgents, "mounted", of_image)
        patch.setattr(docker_spec, "agent_mounts", none_of_it)
        yield
