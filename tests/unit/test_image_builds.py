"""Builds in the background: one at a time, repeated late, ended with their owner."""

from pathlib import Path

import psutil
import pytest

from orchestrator.host.engine.image_names import recipe_of
from orchestrator.sandbox.sandboxes.image_builds import PAUSE_SECONDS, ImageBuilds, build_words
from tests.support.builds import Builder
from tests.support.until import until

DEV, NODE = "paddock/dev:latest", "paddock/node:latest"


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Builder:
    return Builder.at(tmp_path, monkeypatch)


def test_what_is_built_here() -> None:
    words = build_words(DEV)
    assert words is not None
    assert words[1:] == ["-m", "images", "build", "dev", "--tag", DEV]
    assert (build_words("team/dev:latest"), build_words("paddock/own:1")) == (None, None)
    assert recipe_of("paddock/node:2") == "node"


async def test_the_end_of_the_owner_ends_the_process(builder: Builder) -> None:
    builds = ImageBuilds(None)
    builds.begin(DEV)
    await until(lambda: builder.began == 1)
    await builds.close()
    assert not psutil.pid_exists(builder.pids[0])


async def test_one_at_a_time(builder: Builder) -> None:
    builds = ImageBuilds(None)
    builds.begin(DEV)
    await until(lambda: builder.began == 1)
    builds.begin(NODE)
    builds.begin(DEV)
    assert "waits for another build" in (builds.told(NODE) or "")
    assert builder.began == 1
    builder.end(0)
    await until(lambda: builder.began == 2)
    assert builds.told(DEV) is None
    builder.end(0)
    await until(lambda: builds.told(NODE) is None)
    await builds.close()


async def test_a_failed_build_is_tried_again_late(builder: Builder) -> None:
    now = 1.0
    builds = ImageBuilds(None, lambda: now)
    builds.begin(DEV)
    await until(lambda: builder.began == 1)
    builder.end(1)
    await until(lambda: "can't be built" in (builds.told(DEV) or ""))
    builds.begin(DEV)
    assert "no mirror answers" in (builds.told(DEV) or "")
    now += PAUSE_SECONDS
    builds.begin(DEV)
    await until(lambda: builder.began == 2)
    builder.end(0)
    await until(lambda: builds.told(DEV) is None)
    await builds.close()
