"""What bodies of new sessions, sandboxes and volumes say about their place."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.placement import Wanted
from gateway.places.archive_head import HEAD_BYTES, manifest_size, session_in
from gateway.places.asked import (
    Known,
    asked_in,
    asked_in_e2b,
    need_of_template,
    template_in,
    volume_in,
    with_id,
)
from gateway.places.building import builder
from orchestrator.operate.snapshots.archive import head
from orchestrator.settings.e2b_names import LEVEL

COLLECTIONS = {
    *("/api/volumes", "/api/snapshots"),
    *("/compat/e2b/volumes", "/compat/e2b/templates/aliases"),
}
KNOWN = Known({"low", "medium", "high"}, {"python:3", "base-image"})

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                (
                    *("id", "volumes", "volumeMounts", "name", "placement", "labels", "near"),
                    *("from_snapshot", "image", "templateID", "metadata", LEVEL, "limits", "cpus"),
                )
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)


@given(ANY)
def test_any_body_says_something_or_nothing(body: Any) -> None:
    for asked in (
        asked_in(body, "ci"),
        asked_in_e2b(body, "ci", "medium", KNOWN),
        volume_in(body, "ci"),
    ):
        assert asked.wanted.owner == "ci"
        assert len(asked.needs) <= 9
        for need in asked.needs:
            # A name is one segment of a path: it leads nowhere else.
            collection, _, name = need.path.rpartition("/")
            assert collection in COLLECTIONS
            assert name not in ("", ".", "..")
            assert not {*"?#/"} & {*name}


def test_what_a_session_needs() -> None:
    mounts = [{"name": "cache", "path": "/a"}, {"name": "a/b"}, {"name": "cache"}, {"name": ".."}]
    asked = asked_in({"volumes": mounts, "from_snapshot": "base"}, None)
    assert [need.path for need in asked.needs] == [
        *("/api/volumes/cache", "/api/volumes/a%2Fb", "/api/snapshots/base")
    ]
    assert not any(need.shared for need in asked.needs)


@pytest.mark.parametrize(
    ("body", "wanted", "paths"),
    [
        ({"templateID": "base"}, Wanted("medium"), []),
        ({"templateID": "base:latest", "metadata": {LEVEL: "low"}}, Wanted("low"), []),
        ({"templateID": "high"}, Wanted("high"), []),
        ({"templateID": "python:3"}, Wanted("medium", "python:3"), []),
        (
            {"templateID": "python:3", "metadata": {LEVEL: "high"}},
            Wanted("high", "python:3"),
            [],
        ),
        (
            {"templateID": "mine:v1", "volumeMounts": [{"name": "cache"}]},
            Wanted(),
            ["/compat/e2b/volumes/cache", "/compat/e2b/templates/aliases/mine%3Av1"],
        ),
        ({"templateID": ".."}, Wanted("medium"), []),
    ],
)
def test_what_a_sandbox_is_made_from(
    body: dict[str, Any], wanted: Wanted, paths: list[str]
) -> None:
    asked = asked_in_e2b(body, None, "medium", KNOWN)
    assert (asked.wanted, [need.path for need in asked.needs]) == (wanted, paths)


def test_where_a_volume_shall_be() -> None:
    asked = volume_in({"placement": {"labels": {"zone": "a", "x": 1}, "near": "web"}}, None)
    assert (asked.wanted.labels, asked.near) == ({"zone": "a"}, "web")


def test_which_template_is_meant() -> None:
    for body, name in (
        ({"name": "Web:v1"}, "web"),
        ({"alias": "web"}, "web"),
        ({"name": "a", "alias": "b"}, "a"),
        ({"name": 7}, None),
        ({"name": ".."}, None),
        ([], None),
    ):
        assert template_in(body, "name", "alias") == name
    path = "/compat/e2b/templates/a%20b/tags"
    assert need_of_template("a b") == (path, "template a b", "name", True)


@given(
    st.dictionaries(st.sampled_from("abcd"), st.sets(st.sampled_from(["web", "x", "y"]))),
    st.sets(st.sampled_from("abcd")),
    st.sampled_from(["ann", "bob"]),
)
def test_where_templates_are_built(
    templates: dict[str, set[str]], ready: set[str], owner: str
) -> None:
    chosen = builder("web", owner, templates, ready)
    holders = {node for node, own in templates.items() if "web" in own}
    assert (chosen is None) == (not holders and not ready)
    if chosen is None:
        return
    assert chosen in (holders or ready)
    most = max(len(templates.get(node, ())) for node in holders or ready)
    assert len(templates.get(chosen, ())) == most
    # Nodes that come and go elsewhere change nothing, and neither does the order.
    assert builder("web", owner, templates, sorted(ready - {"d"}, reverse=True)) == chosen or (
        chosen == "d"
    )


def test_keys_are_spread_over_nodes() -> None:
    chosen = {builder("web", f"key-{number}", {}, "abc") for number in range(50)}
    assert chosen == {*"abc"}


@given(st.dictionaries(st.text(max_size=5).filter(lambda name: name != "id"), st.integers()))
def test_an_id_is_added_to_what_is_there(found: dict[str, int]) -> None:
    for indent in (None, 2):
        body = b" \n" + json.dumps(found, indent=indent).encode()
        assert json.loads(with_id(body, found, 'x"y')) == found | {"id": 'x"y'}


@given(st.binary(max_size=600) | st.just(head(b'{"session": 7}')))
def test_any_beginning_of_an_archive(data: bytes) -> None:
    size = manifest_size(data)
    assert size is None or size >= 0


def test_the_beginning_of_a_snapshot_names_its_session() -> None:
    manifest = json.dumps({"session": {"permission_level": "low"}}).encode()
    archive = head(manifest)
    size = manifest_size(archive[:HEAD_BYTES])
    assert size == len(manifest)
    assert session_in(json.loads(archive[HEAD_BYTES : HEAD_BYTES + size])) == {
        "permission_level": "low"
    }
    assert session_in([]) is None
