"""What the mounted agent costs a start, beside one that is in the image."""

import io
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

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
_BUILT_IN = "in the image"
_COMMAND = ("/usr/bin/python3", "-I", "-S", PLACE)
_DOCKERFILE = f"""\
FROM {{base}}
ADD root.tar /
RUN python3 -m compileall -q -f --invalidation-mode unchecked-hash {PLACE}
"""


async def agents(rounds: int) -> list[Result]:
    """Starts of sessions without sandboxes that wait, and what their agents take."""
    usual = build().name
    taken: dict[str, list[_Taken]] = {}
    with baked(usual) as image, _as_it_was(image):
        async with opened(image=usual, images=(image,)) as plane:

            async def start(which: str) -> Sequence[float]:
                began = time.perf_counter()
                box = await Box.create(plane, _LEVEL, image=which)
                seconds = time.perf_counter() - began
                pid = box.agent().pid
                cpu = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6
                await box.run("ls")
                taken.setdefault(which, []).append(_Taken(cpu, resident(pid).now / _MIB))
                await box.close()
                return [seconds]

            sides = (partial(start, usual), partial(start, image))
            mounted, built_in = await alternating(rounds, *sides)
    # The first round does not count.
    ours, theirs = taken[usual][1:], taken[image][1:]
    return [
        compare("start, the agent mounted", mounted, _BUILT_IN, built_in, at_most=1.05),
        _row("CPU time of its start", "ms", [x.cpu for x in ours], [x.cpu for x in theirs]),
        _row("its memory", "MiB", [x.memory for x in ours], [x.memory for x in theirs]),
    ]


class _Taken(NamedTuple):
    """What an agent took: milliseconds of CPU time for its start, and MiB after a command."""

    cpu: float
    memory: float


def _row(what: str, unit: str, ours: Sequence[float], theirs: Sequence[float]) -> Result:
    ratio = percentile(ours, 0.5) / percentile(theirs, 0.5)
    return Result(what, ours, unit, _BUILT_IN, theirs, ratio, 1.05)


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
