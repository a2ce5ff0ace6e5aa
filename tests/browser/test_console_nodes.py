"""The console's page of nodes, and where sessions live: with answers as a cluster gives them."""

import json
import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Route, expect

from tests.support.accessibility import violations
from tests.support.console_page import HOSTILE, Console, opened
from tests.support.served_plane import KEY, ServedPlane

pytestmark = pytest.mark.asyncio(loop_scope="module")

GIB = 2**30
PICTURE = os.environ.get("PADDOCK_TEST_PICTURES")


def _node(name: str, **members: object) -> dict[str, object]:
    return {
        **{"name": name, "state": "ready", "alive": True, "silent_seconds": 1.4},
        "capacity": {"cpus": 16.0, "memory_bytes": 64 * GIB, "sandboxes": 200},
        "used": {"cpus": 4.5, "memory_bytes": 9 * GIB, "sandboxes": 18},
        **{"labels": {"zone": "a", "disk": "ssd"}, "levels": ["low"], "images": []},
        **{"version": "0.1.0", **members},
    }


@pytest_asyncio.fixture(loop_scope="module")
async def console(browser: Browser, served: ServedPlane) -> AsyncIterator[Console]:
    async with opened(browser, served.address) as console:
        yield console


async def _as_a_cluster(console: Console, nodes: list[dict[str, object]]) -> list[str]:
    """Answers as a gateway would; returns the paths of changes as they come."""
    changes: list[str] = []

    async def answer(route: Route) -> None:
        request = route.request
        if request.method == "POST":
            changes.append(request.url.partition("/api/nodes")[2])
            for node in nodes:
                if changes[-1] == f"/{node['name']}/drain":
                    node["state"] = "draining"
            await route.fulfill(json=nodes[0])
            return
        await route.fulfill(json={"items": nodes, "next": None})

    async def placed(route: Route) -> None:
        got = await route.fetch()
        found = await got.json()
        for item in found["items"]:
            item["node"] = "node-1"
        await route.fulfill(response=got, body=json.dumps(found))

    await console.page.route("**/api/nodes**", answer)
    await console.page.route("**/api/sessions?**", placed)
    return changes


async def test_one_machine_shows_no_nodes(console: Console, served: ServedPlane) -> None:
    await served.session()
    await console.sign_in(KEY)
    page = console.page
    await expect(page.get_by_role("row")).to_have_count(2)
    await expect(page.get_by_role("link", name="Nodes")).to_have_count(0)
    await expect(page.get_by_role("columnheader", name="Node")).to_have_count(0)


async def test_a_cluster_shows_its_nodes_and_changes_them(
    console: Console, served: ServedPlane
) -> None:
    silent = {"alive": False, "silent_seconds": 312.0, "labels": {}}
    nodes = [_node("node-1"), _node("node-2", **silent), _node(HOSTILE, state="draining")]
    changes = await _as_a_cluster(console, nodes)
    await served.session()
    await console.sign_in(KEY)
    page = console.page
    await expect(page.get_by_role("columnheader", name="Node")).to_have_count(1)
    await expect(page.get_by_role("cell", name="node-1", exact=True).first).to_be_visible()
    if PICTURE:
        await page.screenshot(path=f"{PICTURE}/sessions.png")
    await page.get_by_role("link", name="Nodes").click()
    row = page.get_by_role("row", name="node-1")
    await expect(row).to_contain_text("disk=ssd, zone=a")
    await expect(row).to_contain_text("18 of 200")
    await expect(row).to_contain_text("9.0 GiB of 64.0 GiB")
    await expect(page.get_by_role("row", name="node-2")).to_contain_text("silent")
    assert await violations(page) == []
    if PICTURE:
        await page.screenshot(path=f"{PICTURE}/nodes.png")
    await page.get_by_role("button", name="Drain node-1", exact=True).click()
    await expect(row).to_contain_text("draining")
    await expect(page.get_by_role("button", name="Forget node-1")).to_have_count(0)
    await page.get_by_role("button", name="Forget node-2").click()
    await page.get_by_role("button", name="Forget", exact=True).click()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    assert changes == ["/node-1/drain", "/node-2/forget"]
