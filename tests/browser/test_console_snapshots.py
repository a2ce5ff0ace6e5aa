"""Snapshots in the console: saved by one control plane's page, restored by another's."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, FilePayload, expect

from orchestrator.sandbox.named_snapshots import snapshot_rows
from orchestrator.sandbox.named_snapshots.snapshot_rows import NamedSnapshot
from orchestrator.state.requests import ExecRequest
from tests.support.accessibility import violations
from tests.support.box import TESTER
from tests.support.console_page import FITS, PATIENCE_MS, PHONE_IS_FULL, opened
from tests.support.fake_agent import Play
from tests.support.served_plane import KEY, ServedPlane, served_plane

pytestmark = pytest.mark.asyncio(loop_scope="module")

DROP = """(element, text) => {
  const files = new DataTransfer();
  files.items.add(new File([text], "drop.tar"));
  element.dispatchEvent(new DragEvent("drop", {dataTransfer: files, bubbles: true}));
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[ServedPlane]:
    async with served_plane() as served:
        served.agents.plays["tail"] = Play(holds=True)
        yield served


async def test_a_session_moves_to_another_control_plane(
    browser: Browser, served: ServedPlane, tmp_path: Path
) -> None:
    session = await served.session(id="moving", idle_timeout=1234, permission_level="medium")
    running = await served.plane.executions.start(
        TESTER, session, ExecRequest(argv=["tail", "-f", "log"], background=True)
    )
    async with opened(browser, served.address) as console:
        await console.sign_in(KEY)
        page, dialog = console.page, console.page.get_by_role("dialog")
        console.expected += ("409",)
        await console.go("sessions/moving/activity")
        await page.get_by_role("button", name="Snapshot").click(timeout=PATIENCE_MS)
        await expect(dialog).to_contain_text("Secrets, terminals and the output of commands")
        assert await violations(page) == []
        # Nothing may run meanwhile, and what runs is not ended for it.
        take = dialog.get_by_role("button", name="Take and save")
        await take.click()
        await expect(dialog.get_by_role("alert")).to_be_visible(timeout=PATIENCE_MS)
        assert not running.ended
        await dialog.get_by_role("button", name="Cancel").click()
        await expect(dialog).to_have_count(0)
        await page.get_by_role("button", name="Interrupt").click()
        await console.shows("command.exit")
        await page.get_by_role("button", name="Snapshot").click()
        async with page.expect_download() as saving:
            await take.click()
        saved = await saving.value
        assert saved.suggested_filename == "moving.tar"
        await saved.save_as(tmp_path / "moving.tar")
        await expect(dialog.get_by_role("status").first).to_contain_text(
            "Saved as moving.tar", timeout=PATIENCE_MS
        )
        await dialog.get_by_role("button", name="Close").click()
        await expect(page.get_by_role("heading", name="moving")).to_be_visible()
    async with served_plane() as other, opened(browser, other.address) as console:
        await console.sign_in(KEY)
        page, dialog = console.page, console.page.get_by_role("dialog")
        console.expected += ("400", "409")
        await page.get_by_role("button", name="Restore").click()
        restore = dialog.get_by_role("button", name="Restore")
        await expect(restore).to_be_disabled()
        await dialog.get_by_role("group", name="snapshot").evaluate(DROP, "no archive")
        await expect(dialog).to_contain_text("drop.tar, 10 B")
        await restore.click()
        await expect(dialog.get_by_role("alert")).to_be_visible(timeout=PATIENCE_MS)
        assert other.plane.sessions.registry.all == []
        assert await violations(page) == []
        await page.set_viewport_size({"width": 360, "height": 740})
        await page.wait_for_function(PHONE_IS_FULL)
        assert await dialog.evaluate(FITS)
        archive = (tmp_path / "moving.tar").read_bytes()
        given = FilePayload(name="moving.tar", mimeType="application/x-tar", buffer=archive)
        await dialog.get_by_label("Snapshot", exact=True).set_input_files(given)
        await restore.click()
        heading = page.get_by_role("heading", name="moving")
        await expect(heading).to_be_visible(timeout=PATIENCE_MS)
        restored = other.plane.sessions.finder.find(TESTER, "moving")
        assert (restored.level.name, restored.terms.idle_timeout) == ("medium", 1234)
        # A control plane that knows the id refuses it.
        await console.go("sessions")
        await page.get_by_role("button", name="Restore").click(timeout=PATIENCE_MS)
        await dialog.get_by_label("Snapshot", exact=True).set_input_files(given)
        await restore.click()
        await expect(dialog.get_by_role("alert")).to_contain_text("moving", timeout=PATIENCE_MS)


async def test_named_snapshots_are_listed_and_removed_and_refusals_are_shown(
    browser: Browser, served: ServedPlane
) -> None:
    session = await served.session(id="keeper", idle_timeout=1234, permission_level="medium")
    kept = NamedSnapshot(
        *("snap-0123456789abcdef", session.owner, "base", "keeper", session.key),
        *("2026-03-04T09:30:12.482113Z", 9, 2048, 7),
        *("copy", 0, "0" * 64),
        ready=True,
    )
    await served.plane.database.write(partial(snapshot_rows.add, snapshot=kept))
    async with opened(browser, served.address) as console:
        await console.sign_in(KEY)
        page, dialog = console.page, console.page.get_by_role("dialog")
        console.expected += ("409",)
        await console.go("sessions/keeper/activity")
        await page.get_by_role("button", name="Keep files").click(timeout=PATIENCE_MS)
        await expect(dialog.get_by_role("row", name="base")).to_be_visible(timeout=PATIENCE_MS)
        assert await violations(page) == []
        await dialog.get_by_label("Name", exact=True).fill("more")
        await dialog.get_by_role("button", name="Keep a copy").click()
        alert = dialog.get_by_role("alert")
        await expect(alert).to_contain_text("PADDOCK_WORKSPACE_QUOTA", timeout=PATIENCE_MS)
        await dialog.get_by_role("button", name="Remove base").click()
        await expect(dialog).to_contain_text("There is no copy yet.", timeout=PATIENCE_MS)
        await dialog.get_by_role("button", name="Cancel").click()
        await page.get_by_role("button", name="Fork").click()
        await dialog.get_by_label("Sessions").fill("2")
        assert await violations(page) == []
        await dialog.get_by_role("button", name="Fork").click()
        await expect(alert).to_contain_text("PADDOCK_WORKSPACE_QUOTA", timeout=PATIENCE_MS)
    assert await served.plane.named_snapshots.page(None, None, ("", ""), 10) == []
