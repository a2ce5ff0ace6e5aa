"""A server that is one machine: it has no nodes, and refuses what only a cluster can give."""

from typing import Any

import pytest

from tests.api.conftest import Api


async def test_it_has_no_nodes_and_its_lists_miss_none(api: Api) -> None:
    assert await api.json("GET", "/api/nodes") == {"items": [], "next": None}
    assert (await api.session(id="one"))["node"] is None
    for path in ("/api/sessions", "/api/approvals", "/api/audit", "/api/audit/denials"):
        assert (await api.json("GET", path))["missing"] == []
    for change in ("drain", "undrain", "forget"):
        await api.problem(404, "not_found", "POST", f"/api/nodes/one/{change}", json={})


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"placement": {"labels": {"zone": "a"}}}, "placement.labels.zone"),
        ({"placement": {"labels": {"zone": ""}}}, "placement.labels.zone"),
        ({"placement": {"labels": {"a b": "x"}}}, "placement.labels.a b"),
        ({"placement": {"near": "nobody"}}, "placement.near"),
        ({"placement": {"other": 1}}, "placement.other"),
        ({"recovery": "snapshot"}, "recovery"),
        ({"recovery": "always"}, "recovery"),
    ],
)
async def test_what_it_can_not_give_is_refused(api: Api, body: Any, field: str) -> None:
    found = await api.problem(400, "validation_error", "POST", "/api/sessions", json=body)
    assert found["field"] == field
    assert (await api.json("GET", "/api/sessions"))["items"] == []


async def test_a_session_near_another_one_is_here(api: Api) -> None:
    await api.session(id="one")
    found = await api.session(id="two", placement={"near": "one"}, recovery="none")
    assert found["id"] == "two"


async def test_sessions_are_listed_by_their_lives(api: Api) -> None:
    """As a gateway asks: only of these, and with all other conditions."""
    for name in ("one", "two"):
        await api.session(id=name)
    keys = {each.id: each.key for each in api.plane.sessions.registry.live}
    path = f"/api/sessions?keys={keys['one']},{'0' * 16}"
    assert [each["id"] for each in (await api.json("GET", path))["items"]] == ["one"]
    await api.json("DELETE", "/api/sessions/one")
    assert (await api.json("GET", f"{path}&status=live"))["items"] == []
    assert [each["id"] for each in (await api.json("GET", path))["items"]] == ["one"]
    for bad in ("", "x", "0" * 15, "0" * 16 + ",", ",".join(["0" * 16] * 1001)):
        found = await api.problem(400, "validation_error", "GET", f"/api/sessions?keys={bad}")
        assert found["field"] == "keys"


@pytest.mark.parametrize("cursor", ["x", "-1", "apr-1", "apr-" + "0" * 17, "1" * 19])
async def test_other_cursors_of_approvals_are_refused(api: Api, cursor: str) -> None:
    found = await api.problem(400, "validation_error", "GET", f"/api/approvals?cursor={cursor}")
    assert found["field"] == "cursor"
