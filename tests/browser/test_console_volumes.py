"""Volumes in the console: listed, created, given to a new session, removed."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.support.accessibility import violations
from tests.support.box import TESTER
from tests.support.console_page import FITS, PATIENCE_MS, PHONE_IS_FULL, Console, opened
from tests.support.served_plane import KEY, ServedPlane

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def console(browser: Browser, served: ServedPlane) -> AsyncIterator[Console]:
    async with opened(browser, served.address) as console:
        await console.sign_in(KEY)
        yield console


async def test_a_volume_is_created_used_by_a_new_session_and_removed(
    console: Console, served: ServedPlane
) -> None:
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.expected += ("400", "409")
    # Without a volume, the dialog has nothing to choose.
    await page.get_by_role("button", name="New session").click()
    await expect(dialog.get_by_label("Level")).to_be_visible(timeout=PATIENCE_MS)
    await expect(dialog.get_by_text("Volumes")).to_have_count(0)
    await page.keyboard.press("Escape")
    await console.go("volumes")
    await console.shows("There is no volume.")
    await page.get_by_label("Name").fill("cache")
    await page.get_by_label("Size, MiB").fill("1")
    create = page.get_by_role("button", name="Create volume")
    await create.click()
    await expect(page.get_by_role("alert")).to_contain_text("size_bytes", timeout=PATIENCE_MS)
    for name in ("cache", "models"):
        await page.get_by_label("Name").fill(name)
        await page.get_by_label("Size, MiB").fill("16")
        await create.click()
        row = page.get_by_role("row").filter(has_text=name)
        await expect(row).to_contain_text("of 16.0 MiB", timeout=PATIENCE_MS)
    assert await violations(page) == []
    await page.set_viewport_size({"width": 360, "height": 740})
    await page.wait_for_function(PHONE_IS_FULL)
    current = page.get_by_role("navigation").locator("[aria-current]")
    await expect(current.and_(page.get_by_text("Volumes"))).to_be_in_viewport(ratio=0.9)
    # A session has both, of which one is read-only.
    await console.go("sessions")
    await page.get_by_role("button", name="New session").click(timeout=PATIENCE_MS)
    await dialog.get_by_label("Id", exact=True).fill("with-volumes")
    await dialog.get_by_text("Volumes", exact=True).click()
    add = dialog.get_by_role("button", name="Add a volume")
    for _ in range(3):
        await add.click()
    await dialog.get_by_role("button", name="Remove volume 3").click()
    first = dialog.get_by_role("group", name="volume 1")
    await expect(first.get_by_label("Path")).to_have_value("/data/cache")
    await first.get_by_role("combobox").select_option("models")
    await expect(first.get_by_label("Path")).to_have_value("/data/models")
    second = dialog.get_by_role("group", name="volume 2")
    await second.get_by_role("combobox").select_option("cache")
    await second.get_by_label("Path").fill("/etc/cache")
    await second.get_by_label("read-only").check()
    assert await violations(page) == []
    assert await dialog.evaluate(FITS)
    await dialog.get_by_role("button", name="Create").click()
    await expect(dialog.get_by_role("alert")).to_contain_text(
        "must not be in /etc", timeout=PATIENCE_MS
    )
    await second.get_by_label("Path").fill("/srv/cache")
    await dialog.get_by_role("button", name="Create").click()
    heading = page.get_by_role("heading", name="with-volumes")
    await expect(heading).to_be_visible(timeout=PATIENCE_MS)
    session = served.plane.sessions.finder.find(TESTER, "with-volumes")
    # The links that a narrow window does not have room for are brought into sight.
    for tab in ("raw", "activity", "level"):
        await console.go(f"sessions/with-volumes/{tab}")
        link = page.locator(f".tabs a[href$='/{tab}']")
        await expect(link).to_have_attribute("aria-current", "page", timeout=PATIENCE_MS)
        await expect(link).to_be_in_viewport(ratio=0.9)
    await page.set_viewport_size({"width": 1280, "height": 720})
    await console.shows("models at /data/models; cache at /srv/cache, read-only")
    # What a session has is not removed; what none has is, after a question.
    await console.go("volumes")
    remove = page.get_by_role("button", name="Remove cache")
    await remove.click(timeout=PATIENCE_MS)
    await dialog.get_by_role("button", name="Remove").click()
    await expect(page.get_by_role("alert")).to_contain_text("with-volumes", timeout=PATIENCE_MS)
    await served.plane.sessions.close(TESTER, session, purge=False)
    await remove.click()
    await expect(dialog).to_contain_text("All of its files are deleted")
    await dialog.get_by_role("button", name="Cancel").click()
    await expect(page.get_by_role("row").filter(has_text="cache")).to_have_count(1)
    await remove.click()
    await dialog.get_by_role("button", name="Remove").click()
    await expect(page.get_by_role("row").filter(has_text="cache")).to_have_count(0)
    await expect(page.get_by_role("row").filter(has_text="models")).to_have_count(1)
