"""Many tabs of the console in one browser, which keeps six connections to an address."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from playwright.async_api import Browser, Page, expect

from tests.support.box import TESTER
from tests.support.console_page import PATIENCE_MS, Console
from tests.support.served_plane import KEY, ServedPlane
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

TABS = 8


@asynccontextmanager
async def tabs_of(browser: Browser, served: ServedPlane) -> AsyncIterator[list[Page]]:
    """Eight tabs of one browser, each signed in."""
    context = await browser.new_context()
    pages = []
    for _ in range(TABS):
        page = await context.new_page()
        pages.append(page)
        await Console(page, served.address).open()
        await page.get_by_label("API key").fill(KEY, timeout=PATIENCE_MS)
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("live", exact=True)).to_be_visible(timeout=PATIENCE_MS)
    try:
        yield pages
    finally:
        await context.close()


def streams(served: ServedPlane) -> int:
    return served.plane.streams._open.total()


async def test_eight_tabs_have_one_stream(browser: Browser, served: ServedPlane) -> None:
    async with AsyncExitStack() as stack:
        tabs = await stack.enter_async_context(tabs_of(browser, served))
        assert streams(served) == 1
        # What happens now is heard by all of them.
        first = await served.session()
        for page in tabs:
            link = page.locator("main").get_by_role("link", name=first.id, exact=True)
            await expect(link.first).to_be_visible(timeout=PATIENCE_MS)
        # The pages of a session need no stream of their own.
        for page in tabs:
            await page.goto(f"{served.address}#/sessions/{first.id}/activity")
            await expect(page.locator("main")).to_contain_text(
                "session.create", timeout=PATIENCE_MS
            )
        assert streams(served) == 1
        # When the tab that reads is gone, another one goes on, and nothing is missed.
        await tabs.pop(0).close()
        await served.plane.sessions.changes.set_level(TESTER, first, "medium", {})
        for page in tabs:
            await expect(page.locator("main")).to_contain_text("medium", timeout=PATIENCE_MS)
            await expect(page.locator("main")).to_contain_text(
                "session.settings", timeout=PATIENCE_MS
            )
        await until(lambda: streams(served) == 1)
