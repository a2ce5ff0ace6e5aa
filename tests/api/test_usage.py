"""What sessions and the host use, what was denied most, and the tools of a level."""

from orchestrator.ground.events import time_text
from orchestrator.host.node.base import Gauged, Load
from orchestrator.host.node.processes import Usage
from tests.api.conftest import OPERATOR_KEY, OTHER_KEY, Api
from tests.support.fake_node import GIB

USAGE = "/api/usage"


async def test_everybody_gets_the_same_samples_of_their_own_sessions(api: Api) -> None:
    for name, key in (("mine", OPERATOR_KEY), ("theirs", OTHER_KEY)):
        await api.session(id=name, key=key)
    history = api.plane.usage
    seconds = 0.0

    async def gauged(containers: dict[str, int | None]) -> Gauged:
        nonlocal seconds
        seconds += 10
        load = Load({"user": seconds}, 2, 4 * GIB, GIB, 8 * GIB, GIB)
        return Gauged(seconds, load, dict.fromkeys(containers, Usage(seconds / 2, 0.0, 7, 3)))

    node = history._node
    api.plane.usage._node = type("Node", (), {"gauge": staticmethod(gauged)})()
    before = history.round
    for _ in range(3):
        await history.sample()
    history._node = node
    shown = await api.json("GET", f"{USAGE}?after={before + 1}")
    assert (shown["round"], shown["interval"]) == (before + 3, 10.0)
    assert shown["host"]["cpu_percent"] == [100.0, 100.0]
    assert shown["host"]["memory_used"] == [3 * GIB] * 2
    assert {item["id"]: item["cpu_percent"] for item in shown["items"]} == {
        "mine": [50.0, 50.0],
        "theirs": [50.0, 50.0],
    }
    assert history.at is not None
    assert shown["sampled_at"] == time_text(history.at)
    one = await api.json("GET", f"{USAGE}?session=theirs")
    assert [item["id"] for item in one["items"]] == ["theirs"]
    none = await api.json("GET", f"{USAGE}?session=theirs", key=OPERATOR_KEY)
    assert none["items"] == []
    own = await api.json("GET", f"{USAGE}?after={shown['round']}", key=OPERATOR_KEY)
    assert own["host"] is None
    assert [(item["id"], item["pids"], item["cpu_percent"]) for item in own["items"]] == [
        ("mine", 3, [])
    ]
    await api.problem(400, "validation_error", "GET", f"{USAGE}?after=-1")


async def test_what_was_denied_most(api: Api) -> None:
    for name, key, times in (("mine", OPERATOR_KEY, 2), ("theirs", OTHER_KEY, 1)):
        await api.session(id=name, key=key)
        for _ in range(times):
            path = f"/api/sessions/{name}/exec"
            await api.problem(403, "permission_denied", "POST", path, json={"argv": ["gcc"]})
    found = (await api.json("GET", "/api/audit/denials"))["items"]
    assert [(group["session_id"], group["times"]) for group in found] == [
        ("mine", 2),
        ("theirs", 1),
    ]
    assert found[0]["latest"]["args"]["argv"] == ["gcc"]
    own = (await api.json("GET", "/api/audit/denials", key=OTHER_KEY))["items"]
    assert [group["session_id"] for group in own] == ["theirs"]
    none = await api.json("GET", "/api/audit/denials?from=2100-01-01T00:00:00Z")
    assert none["items"] == []


async def test_the_tools_of_a_level(api: Api) -> None:
    low, high = [
        (await api.json("GET", f"/api/tools?level={name}"))["items"] for name in ("low", "high")
    ]
    assert [tool["name"] for tool in low] == [tool["name"] for tool in high]
    assert sum(tool["allowed"] for tool in low) < sum(tool["allowed"] for tool in high)
    assert (await api.json("GET", "/api/tools"))["items"]
    await api.problem(400, "validation_error", "GET", "/api/tools?level=highest")
