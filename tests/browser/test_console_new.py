"""The console's dialog for a new session, and the control of a session's time."""

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, FilePayload, expect

from tests.support.accessibility import violations
from tests.support.box import TESTER
from tests.support.console_page import FITS, PATIENCE_MS, PHONE_IS_FULL, Console, opened
from tests.support.served_plane import KEY, ServedPlane

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Drops a file on what the selector finds.
DROP = """(element) => {
  const files = new DataTransfer();
  files.items.add(new File(["dropped"], "drop.txt"));
  element.dispatchEvent(new DragEvent("drop", {dataTransfer: files, bubbles: true}));
}"""
MIB = 1024**2
# When it ends now, by the clock of a slow machine, too.
LATER = re.compile(r"ends in any case in [34] h")


@pytest_asyncio.fixture(loop_scope="module")
async def console(browser: Browser, served: ServedPlane) -> AsyncIterator[Console]:
    async with opened(browser, served.address) as console:
        await console.sign_in(KEY)
        yield console


async def test_a_session_is_created_with_its_files(console: Console, served: ServedPlane) -> None:
    page, dialog = console.page, console.page.get_by_role("dialog")
    await page.get_by_role("button", name="New session").click()
    await dialog.get_by_label("Id", exact=True).fill("made-here")
    await dialog.get_by_label("Level").select_option("low")
    await dialog.get_by_label("Policy of its turns").select_option("SAFE_EDIT")
    await dialog.get_by_label("Ends when idle for, minutes").fill("10")
    given = [
        FilePayload(name=name, mimeType="text/plain", buffer=name.encode())
        for name in ("kept.txt", "not.txt")
    ]
    await dialog.get_by_label("Add files").set_input_files(given)
    await dialog.get_by_role("group", name="files").evaluate(DROP)
    await dialog.get_by_role("button", name="Remove not.txt").click()
    assert await violations(page) == []
    await page.set_viewport_size({"width": 360, "height": 740})
    await page.wait_for_function(PHONE_IS_FULL)
    assert await dialog.evaluate(FITS)
    await dialog.get_by_role("button", name="Create").click()
    await expect(page.get_by_role("heading", name="made-here")).to_be_visible(timeout=PATIENCE_MS)
    session = served.plane.sessions.finder.find(TESTER, "made-here")
    assert (session.level.name, session.policy.name) == ("low", "SAFE_EDIT")
    assert session.terms.idle_timeout == 600
    assert served.agents.files["kept.txt"] == b"kept.txt"
    assert served.agents.files["drop.txt"] == b"dropped"
    assert "not.txt" not in served.agents.files


async def test_a_refusal_names_the_field_and_what_was_typed_stays(
    console: Console, served: ServedPlane
) -> None:
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.expected += ("400",)
    await page.get_by_role("button", name="New session").click()
    await dialog.get_by_label("Id", exact=True).fill("not an id!")
    await dialog.get_by_role("button", name="Create").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("Field: id", timeout=PATIENCE_MS)
    await dialog.get_by_label("Id", exact=True).fill("an-id")
    await dialog.get_by_role("button", name="Create").click()
    await expect(page.get_by_role("heading", name="an-id")).to_be_visible(timeout=PATIENCE_MS)


async def test_a_template_is_chosen_with_its_level(
    console: Console, served: ServedPlane, tmp_path: Path
) -> None:
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.expected += ("409",)
    (tmp_path / "site.toml").write_text('permission_level = "low"')
    templates = served.plane.reload.templates
    templates.reading(tmp_path)()
    await page.get_by_role("button", name="New session").click()
    await dialog.get_by_label("Template").select_option("site")
    await expect(dialog.get_by_label("Level")).to_have_value("low")
    assert await violations(page) == []
    await dialog.get_by_role("button", name="Create").click()
    # The workspaces of these tests are directories, of which no snapshot can be taken.
    alert = dialog.get_by_role("alert")
    await expect(alert).to_contain_text("PADDOCK_WORKSPACE_QUOTA", timeout=PATIENCE_MS)
    assert (await served.plane.templates.show("site")).state == "failed"
    (tmp_path / "site.toml").unlink()
    templates.reading(tmp_path)()


async def test_a_session_has_the_limits_and_the_budget_that_were_typed(
    console: Console, served: ServedPlane
) -> None:
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.expected += ("400",)
    await page.get_by_role("button", name="New session").click()
    await dialog.get_by_label("Id", exact=True).fill("narrow")
    await dialog.get_by_label("Level").select_option("low")
    await dialog.get_by_text("Limits and budget").click()
    typed = {
        **{"CPU, cores": "0.25", "Memory, MiB": "999999", "Processes": "20"},
        **{"Workspace, MiB": "32", "Temporary files, MiB": "2", "Time, minutes": "1.5"},
        **{"CPU time, minutes": "0.5", "Commands": "7", "Turns": "2", "Tokens of models": "5000"},
        **{"Cost of models, dollars": "0.5", "Output, MiB": "1", "Network traffic, MiB": "3"},
        "Record, MiB": "1",
    }
    for label, value in typed.items():
        await dialog.get_by_label(label, exact=True).fill(value)
    low = served.plane.levels["low"].limits
    cores = dialog.get_by_label("CPU, cores", exact=True)
    await expect(cores).to_have_attribute("placeholder", f"at most {low.cpus:g}")
    assert await violations(page) == []
    await page.set_viewport_size({"width": 360, "height": 740})
    await page.wait_for_function(PHONE_IS_FULL)
    assert await dialog.evaluate(FITS)
    # More than the level's is refused by name, and no session is created.
    create = dialog.get_by_role("button", name="Create")
    await create.click()
    alert = dialog.get_by_role("alert")
    await expect(alert).to_contain_text("memory_bytes", timeout=PATIENCE_MS)
    assert "narrow" not in {each.id for each in served.plane.sessions.registry.all}
    await dialog.get_by_label("Memory, MiB").fill("64")
    await create.click()
    await expect(page.get_by_role("heading", name="narrow")).to_be_visible(timeout=PATIENCE_MS)
    session = served.plane.sessions.finder.find(TESTER, "narrow")
    limits, budget = session.limits, session.budget.view(datetime.now(UTC)).limits
    assert (limits.cpus, limits.memory_bytes, limits.pids) == (0.25, 64 * MIB, 20)
    assert (limits.workspace_bytes, limits.tmp_bytes) == (32 * MIB, 2 * MIB)
    asked: dict[str, float] = {
        "time": 90,
        "cpu_seconds": 30,
        "commands": 7,
        "iterations": 2,
        "tokens": 5000,
    }
    asked |= {"cost": 0.5, "output_bytes": MIB, "egress_bytes": 3 * MIB, "audit_bytes": MIB}
    assert dict(budget) == asked


async def test_a_time_of_nothing_is_refused_and_not_left_out(console: Console) -> None:
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.expected += ("400",)
    await page.get_by_role("button", name="New session").click()
    await dialog.get_by_label("Ends in any case after, minutes").fill("0")
    await dialog.get_by_role("button", name="Create").click()
    await expect(dialog.get_by_role("alert")).to_contain_text(
        "Field: wall_timeout", timeout=PATIENCE_MS
    )


async def test_a_file_that_is_refused_leaves_one_session(
    console: Console, served: ServedPlane
) -> None:
    """The next try goes on with the files that are left, and creates nothing again."""
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.expected += ("503",)
    await page.get_by_role("button", name="New session").click()
    await dialog.get_by_label("Id", exact=True).fill("once")
    given = FilePayload(name="late.txt", mimeType="text/plain", buffer=b"late")
    await dialog.get_by_label("Add files").set_input_files(given)
    body = '{"detail": "Not now.", "remedy": "Try again later."}'
    refusal = "**/files?path=late.txt"
    await page.route(refusal, lambda route: route.fulfill(status=503, body=body))
    await dialog.get_by_role("button", name="Create").click()
    alert = dialog.get_by_role("alert")
    await expect(alert).to_contain_text("Try again later.", timeout=PATIENCE_MS)
    await expect(dialog.get_by_role("link", name="once")).to_be_visible()
    await page.unroute(refusal)
    await dialog.get_by_role("button", name="Upload the rest").click()
    await expect(page.get_by_role("heading", name="once")).to_be_visible(timeout=PATIENCE_MS)
    assert served.agents.files["late.txt"] == b"late"


async def test_a_session_gets_more_time(console: Console, served: ServedPlane) -> None:
    page, dialog = console.page, console.page.get_by_role("dialog")
    session = await served.session(idle_timeout=600, wall_timeout=1200)
    await console.go(f"sessions/{session.id}/activity")
    extend = page.get_by_role("button", name="Extend time")
    await expect(page.get_by_text("ends when idle")).to_be_visible(timeout=PATIENCE_MS)
    await extend.click()
    await dialog.get_by_role("button", name="4 h from now", exact=True).click(timeout=PATIENCE_MS)
    await expect(dialog).to_have_count(0, timeout=PATIENCE_MS)
    await expect(page.get_by_text(LATER)).to_be_visible(timeout=PATIENCE_MS)
    kept = 4 * 3600
    assert session.terms.idle_timeout == kept
    assert session.terms.wall_timeout is not None
    assert session.terms.wall_timeout >= kept
    # One time-out is set, and the other one stays.
    await extend.click()
    await dialog.get_by_label("Ends when idle for, minutes").fill("30")
    assert await violations(page) == []
    await page.set_viewport_size({"width": 360, "height": 740})
    await page.wait_for_function(PHONE_IS_FULL)
    assert await dialog.evaluate(FITS)
    before = session.terms.wall_timeout
    await dialog.get_by_role("button", name="Change", exact=True).click()
    await expect(dialog).to_have_count(0, timeout=PATIENCE_MS)
    assert (session.terms.idle_timeout, session.terms.wall_timeout) == (1800, before)


async def test_a_time_that_has_passed_is_named_before_it_ends_the_session(
    console: Console, served: ServedPlane
) -> None:
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.expected += ("400",)
    session = await served.session(wall_timeout=1200)
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    session.created_at = hour_ago.isoformat(timespec="microseconds").replace("+00:00", "Z")
    await console.go(f"sessions/{session.id}/activity")
    await page.get_by_role("button", name="Extend time").click(timeout=PATIENCE_MS)
    field = dialog.get_by_label("Ends after its creation, minutes")
    await field.fill("5")
    await expect(dialog.get_by_role("alert")).to_contain_text("would end at once")
    await expect(dialog.get_by_role("button", name="End the session")).to_be_visible()
    # What the control plane refuses is said with its field.
    await field.fill("99999999999")
    await dialog.get_by_role("button", name="Change", exact=True).click()
    alert = dialog.get_by_role("alert")
    await expect(alert).to_contain_text("wall_timeout", timeout=PATIENCE_MS)
    assert session.terms.wall_timeout == 1200
