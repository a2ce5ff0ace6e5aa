"""The console in a real browser, with real sandboxes: each page's main job."""

import pytest
from playwright.async_api import Browser, expect

from api.views.facilities import facilities_of
from orchestrator.control_plane import ControlPlane
from orchestrator.work.approvals.approvals import Line
from tests.support.box import TESTER, Box
from tests.support.console_page import HOSTILE, PATIENCE_MS, Console, opened

pytestmark = pytest.mark.asyncio(loop_scope="module")


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


async def test_a_higher_level_is_confirmed(console: Console, control_plane: ControlPlane) -> None:
    box = await Box.create(control_plane, "low")
    await console.go(f"sessions/{box.session.id}/level")
    for each in facilities_of(box.session, control_plane.node.kernel) or ():
        await console.shows(each.detail)
    dialog = console.page.get_by_role("dialog")
    # Looking at the levels with the keyboard changes nothing.
    await console.page.get_by_role("radio", name="low").focus(timeout=PATIENCE_MS)
    await console.page.keyboard.press("ArrowDown")
    change = console.page.get_by_role("button", name="Change to medium")
    await expect(change).to_be_visible(timeout=PATIENCE_MS)
    assert box.session.level.name == "low"
    await change.click()
    await dialog.get_by_role("button", name="Cancel").click()
    await expect(dialog).to_have_count(0)
    assert box.session.level.name == "low"
    low = console.page.get_by_role("radio", name="low")
    await expect(low).to_be_checked(timeout=PATIENCE_MS)
    await console.page.get_by_role("radio", name="medium").click()
    await change.click()
    await dialog.get_by_role("button", name="Raise").click()
    chosen = console.page.get_by_role("radio", name="medium")
    await expect(chosen).to_be_checked(timeout=PATIENCE_MS)
    await console.shows("The session is at medium now")
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


async def test_a_handle_sees_its_own_session(
    browser: Browser, address: str, control_plane: ControlPlane
) -> None:
    box = await Box.create(control_plane, "low")
    handle = await control_plane.sessions.changes.rotate_handle(TESTER, box.session)
    async with opened(browser, address) as console:
        await console.page.get_by_label("API key").fill(handle)
        await console.page.get_by_label("Id of the handle's session").fill(box.session.id)
        await console.page.keyboard.press("Enter")
        await console.shows("session.create")
        await expect(console.page.get_by_role("button", name="Abort")).to_have_count(0)


async def test_a_page_says_when_nothing_answers(console: Console) -> None:
    page = console.page
    await console.go("system")
    await console.shows("the ledger can be written")
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
