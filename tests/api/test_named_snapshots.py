"""Named snapshots over HTTP: whose they are, and what is refused."""

import json
import sqlite3
from functools import partial
from typing import Any

import pytest

from orchestrator.sandbox.named_snapshots import snapshot_rows
from orchestrator.sandbox.named_snapshots.snapshot_rows import NamedSnapshot
from paddock import NotFoundError, Paddock
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, OTHER_KEY, Api
from tests.support.cli import run_beside

SNAPSHOTS = "/api/snapshots"
TIME = "2026-03-04T09:30:12.482113Z"


async def kept(api: Api, *names: str, owner: str = "operator", **others: Any) -> None:
    """Snapshots of sessions that ended."""
    for number, name in enumerate(names):
        members: dict[str, Any] = {"sha256": "0" * 64, "method": "copy", "ready": True, **others}
        added = NamedSnapshot(
            f"snap-{owner:0>12}{number:04}", owner, name, "box", "key", TIME, 9, 8, 7, **members
        )
        await api.plane.database.write(partial(snapshot_rows.add, snapshot=added))


async def names(api: Api, key: str, query: str = "") -> list[tuple[str, str]]:
    items = (await api.json("GET", SNAPSHOTS + query, key=key))["items"]
    return [(item["key"], item["name"]) for item in items]


async def test_a_workspace_without_an_image_has_none(api: Api) -> None:
    await api.session(key=OPERATOR_KEY, id="fix")
    for path, body in (("snapshots", {"name": "base"}), ("fork", {"count": 2})):
        problem = await api.problem(
            *(409, "conflict", "POST", f"/api/sessions/fix/{path}"), json=body, key=OPERATOR_KEY
        )
        assert "PADDOCK_WORKSPACE_QUOTA=image" in problem["detail"]
    assert await names(api, OPERATOR_KEY) == []
    assert [each.id for each in api.plane.sessions.registry.live] == ["fix"]
    await kept(api, "base")
    await api.problem(
        *(409, "conflict", "POST", "/api/sessions"),
        json={"id": "new", "permission_level": "low", "from_snapshot": "base"},
        key=OPERATOR_KEY,
    )
    assert [each.id for each in api.plane.sessions.registry.live] == ["fix"]


async def test_it_has_the_texts_of_its_creator(api: Api) -> None:
    await kept(api, "base", metadata='{"commit": "a b\\n\\u00e9"}')
    shown = await api.json("GET", f"{SNAPSHOTS}/base", key=OPERATOR_KEY)
    assert shown["metadata"] == {"commit": "a b\né"}
    await api.session(key=OPERATOR_KEY, id="fix")
    problem = await api.problem(
        *(400, "validation_error", "POST", "/api/sessions/fix/snapshots"),
        json={"name": "more", "metadata": {"a": "b" * 20_000}},
        key=OPERATOR_KEY,
    )
    assert problem["field"] == "metadata.a" or problem["field"] == "metadata"


async def test_its_texts_are_changed_one_by_one_and_on_record(api: Api) -> None:
    await kept(api, "base", metadata='{"commit": "a", "stays": "b"}')
    path = f"{SNAPSHOTS}/base"
    body: dict[str, Any] = {"metadata": {"commit": None, "tested": "yes\nü"}}
    shown = await api.json("PATCH", path, json=body, key=OPERATOR_KEY)
    assert shown["metadata"] == {"stays": "b", "tested": "yes\nü"}
    assert shown == await api.json("GET", path, key=OPERATOR_KEY)
    found = await api.json("GET", "/api/audit?operation=snapshot.change", key=ADMIN_KEY)
    (event,) = found["items"]
    assert event["actor"] == "operator"
    assert event["args"] == {"name": "base", "id": shown["id"], "key": "operator", **body}
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "metadata"),
        ({"metadata": {}}, "metadata"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"metadata": {"a": "b" * 8193}}, "metadata.a"),
        ({"metadata": dict.fromkeys("ab", "b" * 8192)}, "metadata"),
        # Only with what it has already, they are too many.
        ({"metadata": {str(number): "" for number in range(63)}}, "metadata"),
        ({"metadata": {"a": "b"}, "name": "other"}, "name"),
    ]
    for sent, field in wrong:
        problem = await api.problem(
            *(400, "validation_error", "PATCH", path), json=sent, key=OPERATOR_KEY
        )
        assert problem["field"] == field, sent
    body = {"metadata": {"a": "b"}}
    for other in (path, f"{path}?key=operator"):
        await api.problem(404, "not_found", "PATCH", other, json=body, key=OTHER_KEY)
    await kept(api, "half", owner="other", ready=False, sha256=None, method=None)
    await api.problem(409, "conflict", "PATCH", f"{SNAPSHOTS}/half", json=body, key=OTHER_KEY)
    assert shown == await api.json("GET", path, key=OPERATOR_KEY)
    assert len((await api.json("GET", "/api/audit?operation=snapshot.change"))["items"]) == 1


async def test_one_with_a_layer_is_for_levels_that_have_one(api: Api) -> None:
    await kept(api, "base", layer_bytes=5)
    shown = await api.json("GET", f"{SNAPSHOTS}/base", key=OPERATOR_KEY)
    assert (shown["stored_bytes"], shown["layer_bytes"]) == (8, 5)
    problem = await api.problem(
        *(400, "validation_error", "POST", "/api/sessions"),
        json={"permission_level": "high", "from_snapshot": "base"},
        key=OPERATOR_KEY,
    )
    assert (problem["field"], "root_bytes" in problem["detail"]) == ("permission_level", True)
    assert api.plane.sessions.registry.live == []
    await api.session(key=OPERATOR_KEY, id="fix")
    problem = await api.problem(
        *(400, "validation_error", "POST", "/api/sessions/fix/snapshots"),
        json={"name": "more", "layer": "all"},
        key=OPERATOR_KEY,
    )
    assert problem["field"] == "layer"


async def test_only_its_key_and_admins_see_it(api: Api) -> None:
    await kept(api, "base", "more")
    await kept(api, "base", owner="other")
    assert await names(api, OPERATOR_KEY) == [("operator", "base"), ("operator", "more")]
    assert await names(api, OPERATOR_KEY, "?key=other") == []
    assert await names(api, OPERATOR_KEY, "?session=none") == []
    assert len(await names(api, ADMIN_KEY)) == 3
    first = await api.json("GET", f"{SNAPSHOTS}?limit=2", key=ADMIN_KEY)
    rest = await names(api, ADMIN_KEY, f"?limit=2&cursor={first['next']}")
    assert rest == [("other", "base")]
    for method in ("GET", "DELETE"):
        await api.problem(404, "not_found", method, f"{SNAPSHOTS}/more", key=OTHER_KEY)
        path = f"{SNAPSHOTS}/base?key=operator"
        await api.problem(404, "not_found", method, path, key=OTHER_KEY)
    body = {"permission_level": "low", "from_snapshot": "more"}
    await api.problem(404, "not_found", "POST", "/api/sessions", json=body, key=OTHER_KEY)
    await api.session(key=OPERATOR_KEY, id="mine")
    for path, sent in (("snapshots", {"name": "x"}), ("fork", {"count": 2})):
        path = f"/api/sessions/mine/{path}"
        await api.problem(404, "not_found", "POST", path, json=sent, key=OTHER_KEY)
    await api.json("DELETE", f"{SNAPSHOTS}/base?key=other", key=ADMIN_KEY)
    assert await names(api, OTHER_KEY) == []


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("snapshots", {}, "name"),
        ("snapshots", {"name": ""}, "name"),
        ("snapshots", {"name": "a/b"}, "name"),
        ("snapshots", {"name": "snap-0123456789abcdef"}, "name"),
        ("snapshots", {"name": "x", "more": 1}, "more"),
        ("fork", {}, "count"),
        ("fork", {"count": 0}, "count"),
        ("fork", {"count": 101}, "count"),
        ("fork", {"count": "2"}, "count"),
    ],
)
async def test_bad_input_names_its_member(
    api: Api, path: str, body: dict[str, Any], field: str
) -> None:
    await api.session(id="box")
    problem = await api.problem(
        400, "validation_error", "POST", f"/api/sessions/box/{path}", json=body
    )
    assert problem["field"] == field


async def test_the_client_and_the_command_line(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await kept(api, "base", "more")
    async with Paddock(str(api.server.make_url("")), OPERATOR_KEY) as paddock:
        shown = await paddock.snapshots.get("base")
        assert (shown.status, shown.frozen_ms, shown.stored_bytes) == ("ready", 0.0, 8)
        assert [each.name for each in (await paddock.snapshots.list()).items] == ["base", "more"]
        tested = await paddock.snapshots.change("base", {"tested": "yes"})
        assert tested.metadata == {"tested": "yes"}
        assert (await paddock.snapshots.remove(shown.id)).name == "base"
        with pytest.raises(NotFoundError):
            await paddock.snapshots.get("base")
    monkeypatch.setenv("PADDOCK_KEY", OPERATOR_KEY)
    monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{api.server.port}")
    assert "more" in (await run_beside("snapshots", "list")).out
    assert "copy" in (await run_beside("snapshots", "show", "more", "--json")).out
    options = ("--metadata", "a=b", "--metadata", "c=d")
    assert (await run_beside("snapshots", "set", "more", *options)).status == 0
    changed = await run_beside("snapshots", "set", "more", "--remove", "a", "--json")
    assert json.loads(changed.out)["metadata"] == {"c": "d"}
    assert (await run_beside("snapshots", "rm", "more")).status == 0
    assert (await run_beside("snapshots", "show", "more")).status == 5
    assert (await run_beside("fork", "nothing", "--count", "2")).status == 5


async def test_a_start_forgets_what_has_no_file(api: Api) -> None:
    await kept(api, "base")
    await kept(api, "half", owner="other", ready=False, sha256=None, method=None)
    shown = await api.json("GET", f"{SNAPSHOTS}/half?key=other", key=ADMIN_KEY)
    assert (shown["status"], shown["frozen_ms"], shown["sha256"]) == ("taking", None, None)
    await api.problem(409, "conflict", "DELETE", f"{SNAPSHOTS}/half", key=OTHER_KEY)
    directory = api.plane.settings.snapshots_path
    directory.mkdir()
    (directory / "snap-0123456789abcdef.img").write_bytes(b"x")
    await api.plane.named_snapshots.recover()
    assert list(directory.iterdir()) == []

    def rows(connection: sqlite3.Connection) -> list[NamedSnapshot]:
        return snapshot_rows.all_of(connection)

    assert await api.plane.database.read(rows) == []
    found = await api.json("GET", "/api/audit?operation=snapshot.remove", key=ADMIN_KEY)
    errors = {item["args"]["name"]: item["error"] for item in found["items"]}
    assert errors == {
        "base": "its file is gone",
        "half": "the snapshot could not be taken: interrupted",
    }
