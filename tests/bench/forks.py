"""What forks cost, by shared blocks and by a copy, and sessions of a template beside others."""

import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from images.builder import build
from paddock import Paddock
from tests.bench.plane import BenchError, measured_plane
from tests.bench.report import Result, compare
from tests.bench.rounds import alternating
from tests.support.box import TESTER, Box
from tests.support.file_systems import available, file_system
from tests.support.plane import opened

_GIB = 1024**3
# The session's own data, one fork's, and what forks write besides.
_ROOM = 6
_FILES = 100
_LEVEL = "high"
_TEMPLATE = f"""
permission_level = "{_LEVEL}"
setup = ["mkdir src && for n in $(seq {_FILES}); do echo $n > src/$n; done"]
"""


async def forks(rounds: int, size: int) -> list[Result]:
    """`size` is that of the workspace's data, in bytes."""
    what = f"fork of {size / _GIB:.3g} GiB"
    async with AsyncExitStack() as stack:
        copying = await stack.enter_async_context(_session_on("ext4", size))
        copied = partial(_fork, copying, "copy")
        if not available("xfs"):
            (alone,) = await alternating(rounds, copied)
            return [compare(f"{what}, copied", alone, "", alone), *await _templates(rounds)]
        sharing = await stack.enter_async_context(_session_on("xfs", size))
        shared, by_copy = await alternating(rounds, partial(_fork, sharing, "reflink"), copied)
    return [
        compare(f"{what}, blocks shared", shared, "copied", by_copy),
        *await _templates(rounds),
    ]


@asynccontextmanager
async def _session_on(kind: str, size: int) -> AsyncIterator[Box]:
    """A session with that much data, its state directory on such a file system."""
    image = build().name
    with file_system(kind, _ROOM * size + _GIB) as place:
        async with AsyncExitStack() as stack:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(tempfile, "tempdir", str(place))
                plane = await stack.enter_async_context(opened(image=image))
            box = await Box.create(plane, _LEVEL)
            done = await box.bash(f"head -c {size} /dev/urandom > data && sync", timeout=600)
            if done.exit_code != 0:
                raise BenchError(f"the workspace was not filled: {done.stderr}")
            yield box


async def _fork(box: Box, method: str) -> Sequence[float]:
    began = time.perf_counter()
    forked = await box.plane.forks.fork(TESTER, box.session, 1)
    taken = time.perf_counter() - began
    if forked.snapshot.method != method:
        raise BenchError(f"the fork was made by {forked.snapshot.method}, not by {method}")
    (made,) = forked.made
    await Box(box.plane, made.session).close()
    return [taken]


async def _templates(rounds: int) -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="paddock-bench-") as directory:
        Path(directory, "site.toml").write_text(_TEMPLATE)
        async with (
            measured_plane(PADDOCK_TEMPLATES_DIR=directory) as plane,
            Paddock(plane.url, plane.key) as paddock,
        ):
            await paddock.templates.build("site")
            from_it, without = await alternating(
                rounds, partial(_create, paddock, "site"), partial(_create, paddock, None)
            )
    return [compare("create from a template", from_it, "create", without)]


async def _create(paddock: Paddock, template: str | None) -> Sequence[float]:
    began = time.perf_counter()
    session = await paddock.sessions.create(permission_level=_LEVEL, template=template)
    taken = time.perf_counter() - began
    await session.close(purge=True)
    return [taken]
