"""Names that are not UTF-8, as requests and answers of the API have them."""

from urllib.parse import quote

import pytest

from tests.api.conftest import Api


@pytest.fixture
async def path(api: Api) -> str:
    return f"/api/sessions/{(await api.session())['id']}"


@pytest.mark.parametrize("name", [r"caf\xe9", r"a\x5cxff", r"back\slash", r"\xFF"])
async def test_a_listed_name_is_a_name_of_requests(api: Api, path: str, name: str) -> None:
    made = await api.json("PUT", f"{path}/files?path={quote(name)}", data=b"x")
    assert made["path"] == name
    listed = await api.json("GET", f"{path}/files/list")
    assert [entry["path"] for entry in listed["items"]] == [name]
    moved = {"source": name, "destination": f"{name}-2"}
    assert await api.json("POST", f"{path}/files/move", json=moved) == moved
    await api.json("DELETE", f"{path}/files?path={quote(name)}-2")
    assert api.agents.files == {}


@pytest.mark.parametrize("name", [r"caf\xc3\xa9", r"a\x5cb"])
async def test_another_spelling_of_a_name_is_refused(api: Api, path: str, name: str) -> None:
    """A rule about `café` would not see it."""
    problem = await api.problem(
        400, "validation_error", "PUT", f"{path}/files?path={quote(name)}", data=b"x"
    )
    assert problem["field"] == "path"
    body = {"source": "a", "destination": name}
    problem = await api.problem(400, "validation_error", "POST", f"{path}/files/move", json=body)
    assert problem["field"] == "destination"
    assert api.agents.files == {}
