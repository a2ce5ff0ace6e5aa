"""What the console's pages draw: addresses that were denied, times of plots, sizes of terminals."""

import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Route, expect

from orchestrator.work.terminals.viewers import Size
from tests.support.box import TESTER
from tests.support.console_page import PATIENCE_MS, Console, opened
from tests.support.served_plane import KEY, ServedPlane

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Notes all that is written on canvases.
NOTE_TEXT = """window.written = [];
const write = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
  window.written.push(text); return write.call(this, text, ...rest);
};"""
HOST = {
    **{"cpus": 2, "memory_bytes": 2**33, "disk_bytes": 2**36},
    **{"cpu_percent": [50.0], "memory_used": [2**32], "disk_used": [2**30]},
}
USAGE = {"round": 1, "interval": 10, "host": HOST, "items": [], "next": None}
# Where a terminal begins and ends, and the place that it has.
EDGES = """(element) => {
  const drawn = element.querySelector(".xterm-screen").getBoundingClientRect();
  const box = element.getBoundingClientRect();
  return {bottom: drawn.bottom, right: drawn.right, height: drawn.height, within: box.right,
          page: document.documentElement.scrollHeight, window: innerHeight};
}"""


@pytest_asyncio.fixture(loop_scope="module")
async def console(browser: Browser, served: ServedPlane) -> AsyncIterator[Console]:
    async with opened(browser, served.address) as console:
        yield console


async def answered(console: Console, path: str, body: dict[str, Any]) -> None:
    async def answer(route: Route) -> None:
        await route.fulfill(body=json.dumps(body), content_type="application/json")

    await console.page.route(path, answer)


def denied(operation: str, **args: Any) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat()
    latest = {"time": now, "operation": operation, "args": args, "error": "refused"}
    where = {"session_id": "web", "incarnation": 1, "operation": operation, "rule": "egress-rules"}
    return {**where, "times": 3, "latest": {**latest, **where}}


async def test_what_was_denied_most_has_its_host(console: Console) -> None:
    request = {"host": "api.example.test", "port": 443, "method": "GET", "program": "curl"}
    groups = [
        denied("egress.connect", **request),
        denied("egress.request", **request, path="/v1/models"),
        denied("command.start", argv=["gcc", "-c"]),
        denied("file.read", path="/etc/shadow"),
    ]
    await answered(console, "**/api/audit/denials", {"items": groups, "next": None})
    await console.sign_in(KEY)
    rows = console.page.get_by_label("denied most").locator(".line")
    expected = ["api.example.test:443", "api.example.test:443/v1/models", "gcc -c", "/etc/shadow"]
    await expect(rows).to_have_text(expected, timeout=PATIENCE_MS)


async def test_a_plot_of_one_sample_has_times_of_now(console: Console) -> None:
    await console.page.add_init_script(NOTE_TEXT)
    await console.open()
    await answered(console, "**/api/usage*", USAGE)
    await console.sign_in(KEY)
    began = datetime.now().astimezone()
    await console.go("system")
    plots = console.page.locator(".plot")
    await expect(plots.filter(has_text="Processors of the host")).to_be_visible(timeout=PATIENCE_MS)
    await expect(plots.filter(has_text="Record")).to_be_visible(timeout=PATIENCE_MS)
    await console.page.wait_for_function(
        "window.written.filter((text) => /^\\d\\d:\\d\\d/.test(text)).length > 1"
    )
    written = await console.page.evaluate("window.written")
    times = {text for text in written if re.match(r"\d\d:\d\d", text)}
    ended = datetime.now().astimezone()
    steps = range(int((ended - began).total_seconds()) + 70)
    seconds = {f"{began - timedelta(seconds=65) + timedelta(seconds=at):%H:%M:%S}" for at in steps}
    assert times <= seconds, (times, began)


async def test_a_shell_fills_the_window(console: Console, served: ServedPlane) -> None:
    session = await served.session(permission_level="high")
    await console.sign_in(KEY)
    page = console.page
    await console.go(f"sessions/{session.id}/shell")
    await page.get_by_role("button", name="Open a shell").click(timeout=PATIENCE_MS)
    screen = page.locator(".screen")
    await expect(page.locator(".xterm-rows")).to_contain_text("$", timeout=PATIENCE_MS)
    for width, height in ((1280, 800), (1000, 1100)):
        await page.set_viewport_size({"width": width, "height": height})
        # The terminal follows the window when the browser tells it of the new size.
        await page.wait_for_function(
            "(height) => {"
            " const { bottom } = document.querySelector('.screen').getBoundingClientRect();"
            " return height - 100 < bottom && bottom <= height"
            " && document.documentElement.scrollHeight <= height; }",
            arg=height,
        )
        edges = await screen.evaluate(EDGES)
        assert edges["right"] <= edges["within"], edges


async def test_a_terminal_that_is_watched_fits_the_window(
    console: Console, served: ServedPlane
) -> None:
    session = await served.session(permission_level="high")
    live = await served.plane.shells.open(TESTER, session, Size(200, 50))
    await console.sign_in(KEY)
    page = console.page
    for width, height in ((1280, 800), (1600, 700)):
        await page.set_viewport_size({"width": width, "height": height})
        await console.go(f"sessions/{session.id}/terminals?pty={live.id}&view=live")
        screen = page.locator(".screen")
        await expect(page.locator(".xterm-rows")).to_contain_text("$", timeout=PATIENCE_MS)
        await page.wait_for_function(
            "() => { const box = document.querySelector('.screen');"
            " return box.scrollWidth <= box.clientWidth; }"
        )
        edges = await screen.evaluate(EDGES)
        assert edges["right"] <= edges["within"], edges
        assert edges["height"] <= height, edges
    # It is brought into sight: what is not, is not drawn.
    await page.set_viewport_size({"width": 700, "height": 420})
    await page.get_by_role("button", name="Watch").click()
    await page.evaluate("scrollTo(0, 0)")
    await page.get_by_role("button", name="Watch").click()
    await expect(page.locator(".screen")).to_be_in_viewport(timeout=PATIENCE_MS)
    await expect(page.locator(".xterm-rows")).to_contain_text("$", timeout=PATIENCE_MS)
