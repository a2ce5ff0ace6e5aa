"""Which listed image a session gets, and names of images."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from images.recipes import find_recipe, recipes
from orchestrator.ground.errors import PaddockError, PermissionDeniedError, ValidationError
from orchestrator.host.engine.docker_records import named_images
from orchestrator.host.engine.image_names import (
    RECIPES,
    build_command,
    familiar,
    how_to_get,
    short_name,
)
from orchestrator.rules.policy.levels import load_levels
from orchestrator.sandbox.sandboxes.listed_images import ListedImages

NAMES = st.text("ab/:@.", min_size=1, max_size=9)
LISTS = st.lists(NAMES, min_size=1, max_size=4)
MEDIUM = load_levels()["medium"]


@given(LISTS, st.text("ab/:@."))
def test_any_name_is_that_of_one_listed_image_or_refused(listed: list[str], asked: str) -> None:
    try:
        found = ListedImages(listed).full_name(asked)
    except ValidationError:
        assert asked not in listed
        return
    assert found in listed
    assert asked in (found, short_name(found))


@given(LISTS, NAMES | st.none(), LISTS | st.none(), LISTS | st.none())
def test_a_chosen_image_is_permitted_by_all(
    listed: list[str], asked: str | None, of_key: list[str] | None, of_level: list[str] | None
) -> None:
    level = replace(MEDIUM, images=None if of_level is None else tuple(of_level))
    try:
        found = ListedImages(listed).choose(asked, of_key, level)
    except (ValidationError, PermissionDeniedError):
        return
    for image in found:
        assert image in listed
        for bounds in (of_key, of_level):
            assert bounds is None or {image, short_name(image)} & set(bounds)


@pytest.mark.parametrize(
    ("of_key", "of_level", "chosen"),
    [
        (None, None, "p/usual:1"),
        (["dev"], None, "p/dev:1"),
        (["node", "usual"], None, "p/usual:1"),
        (["node", "dev"], None, "p/node:1"),
        (["node", "dev"], ["dev"], "p/dev:1"),
        (None, ["p/node:1"], "p/node:1"),
    ],
)
def test_without_a_request(
    of_key: list[str] | None, of_level: list[str] | None, chosen: str
) -> None:
    listed = ListedImages(["p/usual:1", "p/dev:1", "p/node:1"])
    level = replace(MEDIUM, images=None if of_level is None else tuple(of_level))
    assert listed.choose(None, of_key, level)[0] == chosen
    # The level's own default image comes first where it is permitted.
    with_own = ListedImages(listed.names, {"medium": "p/node:1", "high": "p/dev:1"})
    own = all(bounds is None or set(bounds) & {"node", "p/node:1"} for bounds in (of_key, of_level))
    assert with_own.choose(None, of_key, level)[0] == ("p/node:1" if own else chosen)


@pytest.mark.parametrize(
    ("of_key", "of_level", "said"),
    [
        (["gone"], None, "this key permits no image"),
        (None, ["gone"], "level medium permits no image"),
        (["dev"], ["node"], "level medium permits no image"),
        (["twin"], None, "this key permits no image"),
    ],
)
def test_where_nothing_is_permitted(
    of_key: list[str] | None, of_level: list[str] | None, said: str
) -> None:
    listed = ListedImages(["p/usual:1", "p/dev:1", "p/node:1", "p/twin:1", "q/twin:1"])
    level = replace(MEDIUM, images=None if of_level is None else tuple(of_level))
    with pytest.raises(PaddockError, match=said):
        listed.choose(None, of_key, level)


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("debian", "debian:latest"),
        ("docker.io/library/debian:12", "debian:12"),
        ("index.docker.io/paddock/dev", "paddock/dev:latest"),
        ("localhost:5000/dev", "localhost:5000/dev:latest"),
        ("localhost:5000/dev:2", "localhost:5000/dev:2"),
        ("a/dev:2@sha256:0", "a/dev@sha256:0"),
        ("sha256:0", "sha256:0"),
    ],
)
def test_the_engine_s_spelling(name: str, listed: str) -> None:
    assert familiar(name) == listed
    raw: list[dict[str, Any]] = [
        {"Id": "sha256:7", "RepoTags": None, "RepoDigests": None, "Labels": None},
        {"Id": "sha256:0", "RepoTags": [listed], "RepoDigests": [listed], "Labels": {"a": "b"}},
    ]
    found = named_images(raw, [name, "other"])
    assert {key: image.labels for key, image in found.items()} == {name: {"a": "b"}}


def test_commands_that_bring_an_image() -> None:
    assert build_command("paddock/dev:latest") == "paddock images build dev"
    tagged = "paddock images build dev --tag paddock/dev:2"
    assert build_command("paddock/dev:2") == tagged
    assert how_to_get("paddock/dev:2") == f"get it with `{tagged}`"
    assert build_command("paddock/a/dev") is None
    assert "`docker pull example.org/dev:2`" in how_to_get("example.org/dev:2")


def test_no_command_names_a_recipe_that_there_is_not() -> None:
    """Images of one's own lists have names like ours, but only their list builds them."""
    assert set(recipes()) == RECIPES
    for name in recipes():
        assert find_recipe(name).name == name
        assert build_command(f"paddock/{name}") == f"paddock images build {name}"
    assert build_command("paddock/none-holes:latest") == "paddock images build ./none-holes.toml"
    said = how_to_get("paddock/none-holes:3")
    assert "`paddock images build ./none-holes.toml --tag paddock/none-holes:3`" in said
    assert "from its list of packages" in said
