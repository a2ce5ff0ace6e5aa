"""The operator's images: how they are listed, and by which names sessions request them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config.settings import Settings
from orchestrator.engine.base import LABEL_PROTOCOL, Image
from orchestrator.engine.fake import FakeEngine
from orchestrator.errors import ValidationError
from orchestrator.sandboxes.allowed_images import full_name, short_name
from paddock import Paddock
from sandbox_agent.protocol import PROTOCOL_VERSION
from tests.api.conftest import ADMIN_KEY, IMAGE, OPERATOR_KEY, OTHER_KEY, Api
from tests.support.fake_agent import Agents
from tests.support.keys import entry

DEV, OLD, ABSENT = "paddock/dev:latest", "example.org:5000/tools/old@sha256:0", "absent:3"
_TWINS = ("one/twin:1", "two/twin:2")


@pytest.fixture
def settings(settings: Settings) -> Settings:
    assert settings.keys_file is not None
    settings.keys_file.write_text(
        entry("operator", OPERATOR_KEY)
        + entry("other", OTHER_KEY, "operator", f'images = ["{DEV}"]')
    )
    return settings.model_copy(update={"images": (DEV, OLD, ABSENT, *_TWINS)})


@pytest.fixture
def engine(agents: Agents) -> FakeEngine:
    current = {LABEL_PROTOCOL: str(PROTOCOL_VERSION)}
    images = {name: Image("sha256:1", current) for name in (IMAGE, DEV, *_TWINS)}
    images[OLD] = Image("sha256:2", {LABEL_PROTOCOL: "1"})
    return FakeEngine(images=images, on_start=agents.start, on_stop=agents.stop)


async def test_the_images_and_what_each_lacks(api: Api) -> None:
    items = (await api.json("GET", "/api/images", key=OPERATOR_KEY))["items"]
    assert [item["name"] for item in items] == [IMAGE, DEV, OLD, ABSENT, *_TWINS]
    short = ["sandbox", "dev", "old", "absent", "twin", "twin"]
    assert [item["short_name"] for item in items] == short
    assert [item["default"] for item in items] == [True] + [False] * 5
    assert [item["available"] for item in items] == [True, True, False, False, True, True]
    assert "paddock images build" in items[2]["problem"]
    assert "not on this engine" in items[3]["problem"]
    assert items[3]["id"] is None


async def test_a_key_sees_which_it_may_use(api: Api) -> None:
    items = (await api.json("GET", "/api/images", key=OTHER_KEY))["items"]
    assert [item["name"] for item in items if item["allowed"]] == [DEV]


async def test_the_client_lists_them(api: Api) -> None:
    async with Paddock(str(api.server.make_url("")), ADMIN_KEY) as paddock:
        listed = await paddock.images.list()
    assert (listed[1].short_name, listed[1].available) == ("dev", True)


async def test_without_an_engine(api: Api) -> None:
    api.engine.fail_next("image")
    await api.problem(503, "engine_unavailable", "GET", "/api/images")


@pytest.mark.parametrize("asked", [DEV, "dev"])
@pytest.mark.parametrize("key", [OPERATOR_KEY, OTHER_KEY])
async def test_a_session_by_either_name(api: Api, asked: str, key: str) -> None:
    made = await api.json("POST", "/api/sessions", key=key, status=201, json={"image": asked})
    assert made["sandbox"]["image"] == DEV


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("nothing", "which has sandbox, dev, old, absent, twin"),
        ("dev:latest", "not on the operator's list"),
        ("twin", "one/twin:1 or two/twin:2"),
        ("old", "paddock images build"),
    ],
)
async def test_names_of_no_image_that_can_be_had(api: Api, asked: str, told: str) -> None:
    problem = await api.problem(
        400, "validation_error", "POST", "/api/sessions", json={"image": asked}
    )
    assert problem["field"] == "image"
    assert told in problem["detail"]
    assert api.engine.containers == {}


async def test_a_key_can_t_reach_another_image_by_its_short_name(api: Api) -> None:
    problem = await api.problem(
        403,
        "permission_denied",
        *("POST", "/api/sessions"),
        key=OTHER_KEY,
        json={"image": "sandbox"},
    )
    assert problem["rule"] == "key-images"


@given(
    st.lists(st.text("ab/:@.", min_size=1, max_size=9), min_size=1, max_size=4), st.text("ab/:@.")
)
def test_any_name_is_that_of_one_listed_image_or_refused(allowed: list[str], asked: str) -> None:
    try:
        found = full_name(asked, allowed)
    except ValidationError:
        assert asked not in allowed
        return
    assert found in allowed
    assert asked in (found, short_name(found))
