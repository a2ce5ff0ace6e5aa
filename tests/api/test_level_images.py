"""A level's own default image: used where it is there, and built once, in the background."""

from pathlib import Path

import pytest

from orchestrator.host.engine.base import LABEL_IMAGE, LABEL_PROTOCOL, Image
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.settings.settings import Settings
from tests.api.conftest import ADMIN_KEY, IMAGE, OPERATOR_KEY, Api
from tests.support.builds import Builder
from tests.support.cli import run_beside
from tests.support.fake_agent import Agents
from tests.support.keys import entry
from tests.support.until import until

LARGE = "paddock/dev:latest"
_CURRENT = {LABEL_IMAGE: "sandbox"}


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Builder:
    return Builder.at(tmp_path, monkeypatch)


@pytest.fixture
def images() -> dict[str, Image]:
    """What the engine has."""
    return {IMAGE: Image("sha256:1", _CURRENT)}


@pytest.fixture
def engine(images: dict[str, Image], agents: Agents) -> FakeEngine:
    return FakeEngine(images=images, on_start=agents.start, on_stop=agents.stop)


@pytest.fixture
def settings(settings: Settings, builder: Builder) -> Settings:
    assert settings.keys_file is not None
    settings.keys_file.write_text(
        entry("operator", OPERATOR_KEY, "operator", 'images = ["sandbox"]')
    )
    return settings.model_copy(update={"level_images": {"high": LARGE}})


async def created(api: Api, level: str = "high", **members: object) -> tuple[str, str | None]:
    body = {"permission_level": level, **members}
    made = await api.json("POST", "/api/sessions", status=201, json=body)
    return made["sandbox"]["image"], made["missing_image"]


async def listed(api: Api) -> dict[str, object]:
    items = (await api.json("GET", "/api/images"))["items"]
    assert [item["default_levels"] for item in items] == [[], ["high"]]
    return dict(items[1])


async def test_it_is_the_default_where_it_is_there(api: Api, images: dict[str, Image]) -> None:
    images[LARGE] = Image("sha256:2", _CURRENT)
    assert await created(api) == (LARGE, None)
    assert await created(api, "medium") == (IMAGE, None)
    assert await created(api, image="sandbox") == (IMAGE, None)
    assert (await listed(api))["available"] is True


async def test_a_session_does_not_wait_for_it(
    api: Api, builder: Builder, images: dict[str, Image]
) -> None:
    assert await created(api) == (IMAGE, LARGE)
    await until(lambda: builder.began == 1)
    assert await created(api) == (IMAGE, LARGE)
    problem = ""
    while not problem.endswith("Step 2/9 : RUN install"):
        problem = str((await listed(api))["problem"])
        assert problem.startswith(f"image {LARGE} is being built since ")
    images[LARGE] = Image("sha256:2", _CURRENT)
    builder.end(0)
    assert await created(api) == (LARGE, None)
    assert builder.began == 1


async def test_the_record_and_the_session_name_it(api: Api) -> None:
    body = {"id": "one", "permission_level": "high"}
    await api.json("POST", "/api/sessions", status=201, json=body)
    assert (await api.json("GET", "/api/sessions/one"))["missing_image"] == LARGE
    events = await api.json("GET", "/api/sessions/one/audit")
    args = next(e["args"] for e in events["items"] if e["operation"] == "session.create")
    assert (args["image"], args["missing_image"]) == (IMAGE, LARGE)


async def test_a_request_for_it_says_how_to_get_it(api: Api) -> None:
    body = {"permission_level": "high", "image": "dev"}
    problem = await api.problem(400, "validation_error", "POST", "/api/sessions", json=body)
    assert "`paddock images build dev`" in problem["detail"]


async def test_one_that_is_not_ours_is_not_there(api: Api, images: dict[str, Image]) -> None:
    images[LARGE] = Image("sha256:2", {})
    assert await created(api) == (IMAGE, LARGE)


async def test_one_of_an_earlier_version_is_used(
    api: Api, builder: Builder, images: dict[str, Image]
) -> None:
    """Its own agent, of an older protocol, is hidden by the mounted one."""
    images[LARGE] = Image("sha256:2", {LABEL_PROTOCOL: "1"})
    assert await created(api) == (LARGE, None)
    await until(lambda: builder.began == 1)


async def test_a_failure_is_told_and_not_repeated_at_once(api: Api, builder: Builder) -> None:
    assert await created(api) == (IMAGE, LARGE)
    await until(lambda: builder.began == 1)
    builder.end(1)
    problem = ""
    while "can't be built" not in problem:
        problem = str((await listed(api))["problem"])
    assert "error: no mirror answers" in problem
    assert "`paddock images build dev`" in problem
    assert await created(api) == (IMAGE, LARGE)
    assert builder.began == 1


async def test_a_key_that_may_not_have_it_begins_no_build(api: Api, builder: Builder) -> None:
    body = {"permission_level": "high"}
    made = await api.json("POST", "/api/sessions", key=OPERATOR_KEY, status=201, json=body)
    assert (made["sandbox"]["image"], made["missing_image"]) == (IMAGE, None)
    assert await created(api, "low") == (IMAGE, None)
    assert builder.began == 0


async def test_the_command_line_says_it(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{api.server.port}")
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    ended = await run_beside("sessions", "create", "--level", "high")
    assert f"{LARGE}, the default image of high, is not there yet" in ended.err
    ended = await run_beside("sessions", "images")
    assert f"image {LARGE}" in ended.out
