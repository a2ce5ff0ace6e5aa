"""Metadata of sessions: any texts, kept and found."""

import json
from urllib.parse import quote, urlencode

import pytest

from paddock import Paddock
from tests.api.conftest import ADMIN_KEY, Api
from tests.support.cli import run_beside

TEXTS = {"user": "Anna Lindqvist & Co", "note": "two\nlines = 100 %"}


async def test_metadata_is_any_text_by_which_sessions_are_found(api: Api) -> None:
    texts = TEXTS
    one = await api.session(id="one", metadata=texts)
    assert one["metadata"] == texts
    await api.session(id="two", metadata=texts | {"user": "Bo"})
    assert (await api.session(id="three"))["metadata"] == {}

    async def found(query: str) -> list[str]:
        answer = await api.json("GET", f"/api/sessions?{query}")
        return [each["id"] for each in answer["items"]]

    assert await found("metadata=" + quote(urlencode(texts))) == ["one"]
    assert await found("metadata=" + quote(urlencode({"note": texts["note"]}))) == ["two", "one"]
    assert await found("metadata=user%3Dnobody") == []
    await api.json("DELETE", "/api/sessions/one")
    assert await found("status=ended&metadata=" + quote(urlencode(texts))) == ["one"]
    assert await found("status=ended&metadata=user%3DBo") == []
    events = await api.call("GET", "/api/sessions/one/audit")
    assert json.dumps(texts["user"]) in await events.text()


@pytest.mark.parametrize(
    "metadata",
    [
        {"": "x"},
        {"x" * 257: "x"},
        {"x": "x" * 8193},
        {"x": 1},
        {str(number): "" for number in range(65)},
        {str(number): "é" * 2048 for number in range(4)},
        [],
    ],
)
async def test_metadata_is_bounded(api: Api, metadata: object) -> None:
    problem = await api.problem(
        *(400, "validation_error", "POST", "/api/sessions"), json={"metadata": metadata}
    )
    assert problem["field"].startswith("metadata")
    assert api.plane.sessions.registry.live == []


@pytest.mark.parametrize("query", ["metadata=x", "metadata=x%3D%25ff"])
async def test_a_filter_of_metadata_is_pairs(api: Api, query: str) -> None:
    problem = await api.problem(400, "validation_error", "GET", f"/api/sessions?{query}")
    assert problem["field"] == "metadata"


async def test_the_client_and_the_command_line(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Paddock(str(api.server.make_url("")), ADMIN_KEY) as paddock:
        made = await paddock.sessions.create(id="one", metadata=TEXTS)
        assert made.info.metadata == TEXTS
        await paddock.sessions.create(id="two", metadata={"user": "Bo"})
        assert [each.id for each in await paddock.sessions.list(metadata=TEXTS)] == ["one"]
        assert len(await paddock.sessions.list()) == 2
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{api.server.port}")
    made_there = ("sessions", "create", "--id", "three", "--metadata", "user=Cy = C")
    assert (await run_beside(*made_there)).status == 0
    listed = (await run_beside("sessions", "list", "--metadata", "user=Cy = C")).out
    assert "three" in listed
    assert "one" not in listed
    assert "user=Cy = C" in (await run_beside("sessions", "show", "three")).out


async def test_children_have_none_of_their_parents(api: Api) -> None:
    await api.session(id="parent", metadata=TEXTS)
    child = await api.json("POST", "/api/sessions/parent/spawn", json={}, status=201)
    assert (child["parent"], child["metadata"]) == ("parent", {})
