"""Named snapshots over HTTP: whose they are, and what is refused."""

from tests.api.conftest import OPERATOR_KEY, Api

SNAPSHOTS = "/api/snapshots"


async def test_a_workspace_without_an_image_has_none(api: Api) -> None:
    await api.session(key=OPERATOR_KEY, id="fix")
    path = "/api/sessions/fix/snapshots"
    problem = await api.problem(
        409, "conflict", "POST", path, json={"name": "base"}, key=OPERATOR_KEY
    )
    assert "PADDOCK_WORKSPACE_QUOTA=image" in problem["detail"]
    listed = await api.json("GET", SNAPSHOTS, key=OPERATOR_KEY)
    assert listed == {"items": [], "next": None}
