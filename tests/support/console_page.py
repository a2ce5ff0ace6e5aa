"""A page of the console in a real browser, and everything that goes wrong in it."""

import re
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from playwright.async_api import Browser, Locator, Page, expect
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import TimeoutError as PlaywrightTimeoutError

from tests.support.limits import WAIT_SECONDS

# Markup, and a character that turns what follows around.
HOSTILE = "<img src=x onerror=document.title=1>\u202etxt"
PATIENCE_MS = 1000 * WAIT_SECONDS
# On a page that is 360 wide, nothing is wider.
PHONE_IS_FULL = "document.documentElement.scrollWidth === 360"
# Nothing in the dialog is wider than the dialog.
FITS = "(dialog) => dialog.scrollWidth <= dialog.clientWidth && dialog.offsetWidth <= innerWidth"
LOAD_MS, MOST_LOADS = 5_000, 6
# Says each violation of the content security policy to the browser's console.
_TELL_VIOLATIONS = """addEventListener("securitypolicyviolation", (event) => console.error(
    `violates ${event.effectiveDirective}: ${event.blockedURI} in ${event.sourceFile}`))"""


async def load(
    page: Page, first: Awaitable[object], shown: Locator, seconds: float = LOAD_MS / 1000
) -> None:
    """Waits for what is shown, and loads again if the page's scripts were cut off.

    Whenever a network interface of the host comes or goes, such as a container's, the browser cuts
    all connections; a page that lacks a script stays empty.
    """
    with suppress(PlaywrightError):
        await first
    for _ in range(MOST_LOADS):
        with suppress(PlaywrightTimeoutError):
            return await shown.wait_for(timeout=1000 * seconds)
        with suppress(PlaywrightError):
            await page.reload()
    raise AssertionError("the page does not load")


@dataclass
class Console:
    """A signed-in page, and everything in it that went wrong."""

    page: Page
    address: str
    complaints: list[str] = field(default_factory=list)
    # What the browser says of answers and connections that a test is about. Whenever a network
    # interface of the host comes or goes, such as a container's, it cuts all connections. On a
    # busy machine the terminal's library says that it drew late.
    expected: tuple[str, ...] = ("ERR_NETWORK_CHANGED", "task queue exceeded allotted deadline")

    def complain(self, text: str) -> None:
        if not any(each in text for each in self.expected):
            self.complaints.append(text)

    async def open(self) -> None:
        """Loads the page."""
        await load(self.page, self.page.goto(self.address), self.page.get_by_label("API key"))

    async def sign_in(self, key: str) -> None:
        """Signs in, and waits for the stream of events."""
        await self.page.get_by_label("API key").fill(key)
        await self.page.keyboard.press("Enter")
        state = self.page.get_by_text("live", exact=True)
        await expect(state).to_be_visible(timeout=PATIENCE_MS)

    async def reload(self) -> None:
        """Loads the page again, with the credential that it has."""
        await load(self.page, self.page.reload(), self.page.locator("main"))

    async def go(self, place: str) -> None:
        await self.page.goto(f"{self.address}#/{place}")

    async def shows(self, text: str | re.Pattern[str]) -> None:
        await expect(self.page.locator("main")).to_contain_text(text, timeout=PATIENCE_MS)


@asynccontextmanager
async def opened(browser: Browser, address: str) -> AsyncIterator[Console]:
    """A page of a browser of its own. Whatever it complains about fails the test."""
    context = await browser.new_context(accept_downloads=True)
    await context.add_init_script(_TELL_VIOLATIONS)
    page = await context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    console = Console(page, address)
    page.on("pageerror", lambda error: console.complain(str(error)))
    page.on("console", lambda said: console.complain(said.text))
    await console.open()
    yield console
    # Requests that a test answers itself may be on their way still.
    await page.unroute_all(behavior="ignoreErrors")
    assert console.complaints == [], console.complaints
    await context.close()
