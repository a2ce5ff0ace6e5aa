"""The operator's images: how they are listed, and by which names sessions request them."""

import asyncio
from pathlib import Path

import pytest

from orchestrator.host.engine.base import LABEL_IMAGE, Image
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.settings.image_list import add_image, remove_image
from orchestrator.settings.settings import Settings
from paddock import Paddock
from tests.api.conftest import ADMIN_KEY, IMAGE, OPERATOR_KEY, OTHER_KEY, Api
from tests.support.cli import run_beside
from tests.support.egress import level_with
from tests.support.fake_agent import Agents
from tests.support.keys import entry
from tests.support.until import until

DEV, OLD, ABSENT = "paddock/dev:latest", "example.org:5000/tools/old@sha256:0", "absent:3"
LATE = "paddock/late:latest"
_TWINS = ("one/twin:1", "two/twin:2")


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    assert settings.keys_file is not None
    settings.keys_file.write_text(
        entry("operator", OPERATOR_KEY)
        + entry("other", OTHER_KEY, "operator", f'images = ["{DEV}"]')
    )
    (levels := tmp_path / "levels").mkdir()
    packaged = level_with("", "low", 110)
    (levels / "only.toml").write_text(f'images = ["dev", "twin", "unlisted"]\n{packaged}')
    more = {"images": (DEV, OLD, ABSENT, *_TWINS), "levels_dir": levels}
    return settings.model_copy(update=more)


@pytest.fixture
def engine(agents: Agents) -> FakeEngine:
    current = {LABEL_IMAGE: "sandbox"}
    images = {name: Image("sha256:1", current) for name in (IMAGE, DEV, LATE, *_TWINS)}
    images[OLD] = Image("sha256:2", {})
    return FakeEngine(images=images, on_start=agents.start, on_stop=agents.stop)


async def test_the_images_and_what_each_lacks(api: Api) -> None:
    items = (await api.json("GET", "/api/images", key=OPERATOR_KEY))["items"]
    assert [item["name"] for item in items] == [IMAGE, DEV, OLD, ABSENT, *_TWINS]
    short = ["sandbox", "dev", "old", "absent", "twin", "twin"]
    assert [item["short_name"] for item in items] == short
    assert [item["default"] for item in items] == [True] + [False] * 5
    assert [item["available"] for item in items] == [True, True, False, False, True, True]
    assert "was not checked: `paddock images add" in items[2]["problem"]
    assert "get it with `docker pull absent:3`" in items[3]["problem"]
    assert items[3]["id"] is None
    assert [name for name in items[1]["levels"] if name == "only"] == ["only"]
    assert not [item for item in items[2:] if "only" in item["levels"]]


async def test_one_call_to_the_engine_serves_many_who_ask(api: Api) -> None:
    before = len(api.engine.calls)
    gate = api.engine.hang_next("images")
    asking = [asyncio.ensure_future(api.json("GET", "/api/images")) for _ in range(50)]
    await until(lambda: "images" in api.engine.calls[before:])
    gate.set()
    answers = await asyncio.gather(*asking)
    assert all(answer == answers[0] for answer in answers)
    assert len(api.engine.calls) - before <= 2


async def test_the_list_follows_its_file(api: Api) -> None:
    path = api.plane.settings.images_path
    asked = {"image": "late"}
    await api.problem(400, "validation_error", "POST", "/api/sessions", json=asked)
    assert add_image(path, LATE)
    await api.plane.reload.look()
    made = await api.json("POST", "/api/sessions", status=201, json=asked)
    assert made["sandbox"]["image"] == LATE
    assert LATE in [item["name"] for item in (await api.json("GET", "/api/images"))["items"]]
    path.write_text("images = [3]")
    await api.plane.reload.look()
    assert "images.0" in api.plane.reload.problems[path]
    await api.json("POST", "/api/sessions", status=201, json=asked)
    path.write_text(f'# ours\nimages = ["{LATE}"]\n')
    assert remove_image(path, LATE)
    assert path.read_text().startswith("# ours\n")
    await api.plane.reload.look()
    assert path not in api.plane.reload.problems
    await api.problem(400, "validation_error", "POST", "/api/sessions", json=asked)


async def test_a_key_sees_which_it_may_use(api: Api) -> None:
    items = (await api.json("GET", "/api/images", key=OTHER_KEY))["items"]
    assert [item["name"] for item in items if item["allowed"]] == [DEV]


async def test_the_client_lists_them(api: Api) -> None:
    async with Paddock(str(api.server.make_url("")), ADMIN_KEY) as paddock:
        listed = await paddock.images.list()
    assert (listed[1].short_name, listed[1].available) == ("dev", True)


async def test_without_an_engine(api: Api) -> None:
    api.engine.fail_next("images")
    await api.problem(503, "engine_unavailable", "GET", "/api/images")
    # A failure is not kept.
    await api.json("GET", "/api/images")


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
        ("old", "was not checked"),
        ("absent", "get it with `docker pull absent:3`"),
    ],
)
async def test_names_of_no_image_that_can_be_had(api: Api, asked: str, told: str) -> None:
    problem = await api.problem(
        400, "validation_error", "POST", "/api/sessions", json={"image": asked}
    )
    assert problem["field"] == "image"
    assert told in problem["detail"]
    assert api.engine.containers == {}


@pytest.mark.parametrize(
    ("asked", "key", "status", "told"),
    [
        ("nothing", OPERATOR_KEY, 2, "`paddock images add nothing`"),
        ("old", OPERATOR_KEY, 2, "was not checked"),
        ("absent", OPERATOR_KEY, 2, "`docker pull absent:3`"),
        ("sandbox", OTHER_KEY, 4, "key-images"),
    ],
)
async def test_the_command_line_says_what_to_do(
    api: Api, monkeypatch: pytest.MonkeyPatch, asked: str, key: str, status: int, told: str
) -> None:
    monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{api.server.port}")
    monkeypatch.setenv("PADDOCK_KEY", key)
    ended = await run_beside("run", "--image", asked, "--", "ls")
    assert (ended.status, told in ended.err) == (status, True), ended.err


async def test_a_key_can_t_reach_another_image_by_its_short_name(api: Api) -> None:
    problem = await api.problem(
        403,
        "permission_denied",
        *("POST", "/api/sessions"),
        key=OTHER_KEY,
        json={"image": "sandbox"},
    )
    assert (problem["rule"], problem["field"]) == ("key-images", "image")
    assert problem["detail"].endswith("its images are dev")


async def test_a_level_permits_only_its_images(api: Api) -> None:
    only = {"permission_level": "only"}
    made = await api.json("POST", "/api/sessions", status=201, json=only)
    assert made["sandbox"]["image"] == DEV
    asked = {**only, "image": "sandbox"}
    problem = await api.problem(400, "validation_error", "POST", "/api/sessions", json=asked)
    assert problem["field"] == "image"
    assert problem["detail"].endswith("its images are dev")
    plain = await api.json("POST", "/api/sessions", status=201, json={})
    place = f"/api/sessions/{plain['id']}/settings"
    change = {"settings": {"permission_level": "only"}}
    problem = await api.problem(400, "validation_error", "PUT", place, json=change)
    assert (problem["field"], problem["detail"][-4:]) == ("permission_level", " dev")
    assert (await api.json("GET", place))["permission_level"] == "medium"
    await api.json("PUT", f"/api/sessions/{made['id']}/settings", json=change)


async def test_the_agent_is_made_once_what_an_earlier_run_left_is_gone(api: Api) -> None:
    """The container that makes it belongs to no session, as those that are removed at a start."""
    await until(lambda: "make_agent" in api.engine.calls)
    before = api.engine.calls[: api.engine.calls.index("make_agent")]
    assert "list" in before
    await until(lambda: any((api.plane.settings.state_dir / "agents").glob("[0-9a-f]*")))
