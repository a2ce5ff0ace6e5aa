"""The console in a real browser, with real sandboxes: each page's main job."""

import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestServer
from playwright.async_api import Browser, FilePayload, Page, async_playwright, expect
from playwright.async_api import TimeoutError as PlaywrightTimeoutError

from api.app import create_app
from api.server import http_options
from orchestrator.approvals.service import Line
from orchestrator.control_plane import ControlPlane
from orchestrator.errors import PaddockError
from tests.support.box import TESTER, Box

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Markup, and a character that turns what follows around.
HOSTILE = "<img src=x onerror=document.title=1>\u202etxt"
# A busy machine takes its time.
PATIENCE_MS = 30_000
LOAD_MS, MOST_LOADS = 5_000, 6


@dataclass
class Console:
    """A signed-in page, and everything in it that went wrong."""

    page: Page
    address: str
    complaints: list[str] = field(default_factory=list)
    # What the browser says of answers and connections that a test is about. Whenever a network
    # interface of the host comes or goes, such as a container's, it cuts all connections.
    expected: tuple[str, ...] = ("ERR_NETWORK_CHANGED",)

    def complain(self, text: str) -> None:
        if not any(each in text for each in self.expected):
            self.complaints.append(text)

    async def open(self) -> None:
        """Loads the page, again if its scripts were cut off."""
        for _ in range(MOST_LOADS):
            await self.page.goto(self.address)
            with suppress(PlaywrightTimeoutError):
                return await self.page.get_by_label("API key").wait_for(timeout=LOAD_MS)
        raise AssertionError("the page does not load")

    async def go(self, place: str) -> None:
        await self.page.goto(f"{self.address}#/{place}")

    async def shows(self, text: str | re.Pattern[str]) -> None:
        await expect(self.page.locator("main")).to_contain_text(text, timeout=PATIENCE_MS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    chromium = shutil.which("chromium")
    assert chromium is not None, "no chromium: `make browser` installs it"
    async with async_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        launched = await playwright.chromium.launch(executable_path=chromium, args=options)
        yield launched
        await launched.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address(control_plane: ControlPlane) -> AsyncIterator[str]:
    server = TestServer(create_app(control_plane))
    await server.start_server(**http_options(control_plane), shutdown_timeout=0.1)
    async with server:
        yield str(server.make_url("/"))


@asynccontextmanager
async def opened(browser: Browser, address: str) -> AsyncIterator[Console]:
    """A page of a browser of its own. Whatever it complains about fails the test."""
    context = await browser.new_context(accept_downloads=True)
    page = await context.new_page()
    console = Console(page, address)
    page.on("pageerror", lambda error: console.complain(str(error)))
    page.on("console", lambda said: console.complain(said.text))
    await console.open()
    yield console
    assert console.complaints == []
    await context.close()


@pytest_asyncio.fixture(loop_scope="module")
async def console(
    browser: Browser, address: str, control_plane: ControlPlane
) -> AsyncIterator[Console]:
    key = (control_plane.settings.state_dir / "admin.key").read_text().strip()
    async with opened(browser, address) as console:
        await console.page.get_by_label("API key").fill(key)
        await console.page.keyboard.press("Enter")
        await expect(console.page.get_by_text("live", exact=True)).to_be_visible(
            timeout=PATIENCE_MS
        )
        yield console


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(control_plane: ControlPlane) -> Box:
    box = await Box.create(control_plane, "medium")
    await box.write("notes.txt", f"first line\n{HOSTILE}\n".encode())
    await box.run(argv=["echo", HOSTILE])
    with pytest.raises(PaddockError):
        await box.run(argv=["gcc", HOSTILE])
    return box


async def test_an_unknown_key_is_refused(browser: Browser, address: str) -> None:
    async with opened(browser, address) as console:
        console.expected += ("401",)
        await console.page.get_by_label("API key").fill("not a key")
        await console.page.keyboard.press("Enter")
        await console.shows("This key or handle is not known")


async def test_sessions_appear_and_change_as_they_live(
    console: Console, control_plane: ControlPlane, box: Box
) -> None:
    await console.shows(box.session.id)
    new = await Box.create(control_plane, "low", id="appears")
    row = console.page.get_by_role("row").filter(has_text="appears")
    await expect(row).to_contain_text("idle", timeout=PATIENCE_MS)
    await new.write("log", b"")
    command = await new.start(argv=["tail", "-f", "log"], background=True)
    await expect(row).to_contain_text("running", timeout=PATIENCE_MS)
    await new.cancel(command)
    await expect(row).to_contain_text("idle", timeout=PATIENCE_MS)
    await new.close()
    ended = console.page.get_by_role("region", name="ended sessions")
    await expect(ended).to_contain_text("appears", timeout=PATIENCE_MS)


async def test_activity_says_why_something_was_refused(console: Console, box: Box) -> None:
    await console.go(f"sessions/{box.session.id}")
    refused = console.page.get_by_role("listitem").filter(has_text="gcc")
    await refused.locator("summary").click(timeout=PATIENCE_MS)
    await refused.get_by_role("button", name="Why was this refused?").click()
    await expect(refused).to_contain_text("of the level's file", timeout=PATIENCE_MS)
    await console.page.get_by_role("button", name="Verify the chain").click()
    await console.shows("intact")
    await box.run(argv=["pwd"])
    await console.shows("pwd")


async def test_text_of_a_sandbox_is_only_ever_text(console: Console, box: Box) -> None:
    for place in ("activity", "processes", "raw"):
        await console.go(f"sessions/{box.session.id}/{place}")
        await console.shows(box.session.id)
    await console.go("sessions")
    await console.shows(HOSTILE.partition("\u202e")[0])
    await console.go(f"sessions/{box.session.id}/files")
    await console.page.get_by_role("button", name="notes.txt").click(timeout=PATIENCE_MS)
    # What is not visible is shown as its code.
    await console.shows("first line")
    await console.shows("U+202Etxt")
    assert await console.page.locator("main img").count() == 0
    assert await console.page.title() != "1"


async def test_files_go_in_and_out(console: Console, box: Box) -> None:
    page = console.page
    await console.go(f"sessions/{box.session.id}/files")
    await console.shows("notes.txt")
    given = FilePayload(name="up.bin", mimeType="application/octet-stream", buffer=b"\x00\xffdata")
    await page.get_by_label("Upload").set_input_files(given)
    await page.get_by_role("button", name="up.bin").click(timeout=PATIENCE_MS)
    await console.shows("00 ff 64 61 74 61")
    row = page.get_by_role("row").filter(has_text="up.bin")
    async with page.expect_download() as waiting:
        await row.get_by_role("button", name="Download").click()
    assert (await (await waiting.value).path()).read_bytes() == b"\x00\xffdata"
    await row.get_by_role("button", name="Delete").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(row).to_have_count(0, timeout=PATIENCE_MS)
    assert "up.bin" not in await box.paths()


async def test_a_higher_level_is_confirmed(console: Console, control_plane: ControlPlane) -> None:
    box = await Box.create(control_plane, "low")
    await console.go(f"sessions/{box.session.id}/level")
    await console.page.get_by_role("radio", name="medium").click(timeout=PATIENCE_MS)
    dialog = console.page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Cancel").click()
    await expect(dialog).to_have_count(0)
    assert box.session.level.name == "low"
    await console.page.get_by_role("radio", name="medium").click()
    await dialog.get_by_role("button", name="Raise").click()
    chosen = console.page.get_by_role("radio", name="medium")
    await expect(chosen).to_be_checked(timeout=PATIENCE_MS)
    await console.shows("22 commands")
    assert box.session.level.name == "medium"
    await console.page.get_by_role("button", name="Abort").click()
    await dialog.get_by_role("button", name="Abort").click()
    await console.shows("aborted")


async def test_a_line_is_approved_by_keyboard(
    console: Console, control_plane: ControlPlane, box: Box
) -> None:
    line = Line("", "psql", f"DROP TABLE {HOSTILE}", "high")
    asked = await control_plane.approvals.obtain(box.session, line, "handle:x", 0)
    await expect(console.page.get_by_role("navigation")).to_contain_text("1", timeout=PATIENCE_MS)
    await console.page.get_by_role("link", name="Approvals").click()
    await console.shows("U+202E")
    await console.page.get_by_label("approval of psql", exact=True).press("a")
    await console.shows("Nothing waits")
    await console.shows("approved")
    decided = await control_plane.approvals.obtain(box.session, line, "handle:x", 0)
    assert decided.id == asked.id


async def test_the_records_of_all_sessions_are_searched(console: Console, box: Box) -> None:
    await console.go("audit")
    await console.page.get_by_label("Text").fill("gcc")
    await console.page.get_by_label("Decision").select_option("deny")
    await console.page.get_by_role("button", name="Search").click()
    await console.shows("command.start")
    async with console.page.expect_download() as waiting:
        await console.page.get_by_role("button", name="Save as JSON lines").click()
    assert "gcc" in (await (await waiting.value).path()).read_text()


async def test_policies_are_explained_and_the_system_is_checked(console: Console) -> None:
    await console.go("policies")
    await console.page.get_by_label("Command").fill("curl https://example.com")
    await console.page.get_by_role("button", name="Explain").click()
    await console.shows("command-allowlist")
    await console.go("system")
    await console.shows("the ledger can be written")


async def test_a_handle_sees_its_own_session(
    browser: Browser, address: str, control_plane: ControlPlane
) -> None:
    box = await Box.create(control_plane, "low")
    handle = await control_plane.sessions.rotate_handle(TESTER, box.session)
    async with opened(browser, address) as console:
        await console.page.get_by_label("API key").fill(handle)
        await console.page.get_by_label("Id of the handle's session").fill(box.session.id)
        await console.page.keyboard.press("Enter")
        await console.shows("session.create")
        await expect(console.page.get_by_role("button", name="Abort")).to_have_count(0)


async def test_the_page_fits_a_phone_and_says_when_nothing_answers(console: Console) -> None:
    page = console.page
    await page.set_viewport_size({"width": 360, "height": 740})
    for place in ("sessions", "approvals", "audit", "policies", "system"):
        await console.go(place)
        await expect(page.locator("h1")).to_be_visible(timeout=PATIENCE_MS)
        assert await page.evaluate("document.documentElement.scrollWidth") == 360
    console.expected += ("ERR_INTERNET_DISCONNECTED",)
    await page.context.set_offline(True)
    await page.get_by_role("button", name="Check again").click()
    await console.shows("The control plane does not answer")
    await page.context.set_offline(False)
    await (
        page.get_by_role("button", name="Try again")
        .or_(page.get_by_role("button", name="Check again"))
        .first.click()
    )
    await console.shows("the ledger can be written")
