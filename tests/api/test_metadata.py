"""Metadata of sessions: any texts, kept and found."""

import json
from urllib.parse import quote, urlencode

import pytest

from tests.api.conftest import Api

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
