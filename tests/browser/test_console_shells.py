"""Shells that keep their state in the console, without containers: bash follows a script."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, expect

from orchestrator.state.session import Session
from orchestrator.work.shells.kept_shell import ShellSettings
from tests.support.accessibility import violations
from tests.support.box import TESTER
from tests.support.console_page import HOSTILE, PATIENCE_MS, PHONE_IS_FULL, Console, opened
from tests.support.served_plane import KEY, ServedPlane
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def console(browser: Browser, served: ServedPlane) -> AsyncIterator[Console]:
    async with opened(browser, served.address) as console:
        await console.sign_in(KEY)
        yield console


async def with_shell(console: Console, served: ServedPlane, name: str = "main") -> Session:
    """A session with one shell, which the page shows."""
    session = await served.session(permission_level="high")
    settings = ShellSettings(name, "/workspace", {})
    await served.plane.kept_shells.create(TESTER, session, settings)
    await console.go(f"sessions/{session.id}/shells")
    await expect(command(console)).to_be_visible(timeout=PATIENCE_MS)
    return session


def command(console: Console) -> Locator:
    return console.page.get_by_label("Command", exact=True)


def entry(console: Console, label: str) -> Locator:
    return console.page.get_by_role("region", name=label, exact=True)


async def test_a_shell_is_created_and_answers_by_keyboard(
    console: Console, served: ServedPlane
) -> None:
    page = console.page
    session = await served.session(permission_level="high")
    await console.go(f"sessions/{session.id}/shells")
    await expect(page.get_by_label("Name")).to_have_value("default", timeout=PATIENCE_MS)
    await page.get_by_label("Name").fill("build")
    await page.get_by_label("Name").press("Enter")
    await command(console).fill(f"say {HOSTILE}", timeout=PATIENCE_MS)
    await command(console).press("Shift+Enter")
    await page.keyboard.type("and more")
    await page.keyboard.press("Enter")
    first = entry(console, "command 1")
    await expect(first).to_contain_text("exit 0", timeout=PATIENCE_MS)
    said = first.get_by_label("output of command 1")
    await expect(said).to_contain_text("onerror=document.title=1>U+202Etxt\nand more")
    assert await page.title() != "1"
    # The keyboard stays where it types, and calls back what was typed.
    await expect(command(console)).to_be_focused()
    await page.keyboard.type("return 3")
    await page.keyboard.press("Enter")
    await expect(entry(console, "command 2")).to_contain_text("exit 3", timeout=PATIENCE_MS)
    await page.keyboard.press("ArrowUp")
    await expect(command(console)).to_have_value("return 3")
    await page.keyboard.press("ArrowDown")
    await expect(command(console)).to_have_value("")
    await page.keyboard.type("wrong")
    await page.keyboard.press("Enter")
    third = entry(console, "command 3")
    await expect(third).to_contain_text("line 1: syntax error", timeout=PATIENCE_MS)
    assert await violations(page) == []
    await page.set_viewport_size({"width": 360, "height": 740})
    await page.wait_for_function(PHONE_IS_FULL)
    (shell,) = served.plane.kept_shells.list(session)
    assert shell.name == "build"


async def test_a_program_that_waits_gets_its_input(console: Console, served: ServedPlane) -> None:
    page = console.page
    session = await with_shell(console, served)
    await command(console).fill("ask your name")
    await command(console).press("Enter")
    await expect(entry(console, "command 1")).to_contain_text(
        "waits for input", timeout=PATIENCE_MS
    )
    typed = page.get_by_label("Input for the program that runs")
    await expect(typed).to_be_focused(timeout=PATIENCE_MS)
    await typed.fill("Ada")
    await page.get_by_role("button", name="Send").click()
    answer = entry(console, "input 2")
    await expect(answer).to_contain_text("exit 0", timeout=PATIENCE_MS)
    await expect(answer).to_contain_text("got Ada")
    await expect(command(console)).to_be_visible(timeout=PATIENCE_MS)
    assert not served.plane.kept_shells.list(session)[0].running


async def test_a_command_is_interrupted_and_the_shell_stays(
    console: Console, served: ServedPlane
) -> None:
    page = console.page
    session = await with_shell(console, served)
    await command(console).fill("hang here")
    await command(console).press("Enter")
    await expect(entry(console, "command 1")).to_contain_text("running", timeout=PATIENCE_MS)
    # What would be sent meanwhile waits where it was typed.
    await command(console).fill("echo later")
    await command(console).press("Enter")
    await expect(entry(console, "command 2")).to_have_count(0)
    await page.get_by_role("button", name="Interrupt", exact=True).last.click()
    await expect(entry(console, "command 1")).to_contain_text("exit 130", timeout=PATIENCE_MS)
    await expect(command(console)).to_have_value("echo later")
    await command(console).press("Enter")
    await expect(entry(console, "command 2")).to_contain_text("ran echo later", timeout=PATIENCE_MS)
    assert len(served.plane.kept_shells.list(session)) == 1


async def test_leaving_the_page_stops_its_command_and_a_shell_is_ended_when_asked(
    console: Console, served: ServedPlane
) -> None:
    page = console.page
    session = await with_shell(console, served)
    await command(console).fill("hang")
    await command(console).press("Enter")
    await expect(entry(console, "command 1")).to_contain_text("running", timeout=PATIENCE_MS)
    await console.go(f"sessions/{session.id}/level")
    await until(lambda: not served.plane.kept_shells.list(session)[0].running)
    # A change of the level names it, and asks.
    low = page.get_by_role("radio", name="low", exact=True)
    await low.check(timeout=PATIENCE_MS)
    await page.get_by_role("button", name="Change to low").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.locator("li")).to_have_text(["shell main"], timeout=PATIENCE_MS)
    await dialog.get_by_role("button", name="Cancel").click()
    assert len(served.plane.kept_shells.list(session)) == 1
    # A page with a screen does not type into it.
    await console.go(f"sessions/{session.id}/shell")
    await expect(page.get_by_role("button", name="Open a shell")).to_be_visible(timeout=PATIENCE_MS)
    await console.go(f"sessions/{session.id}/terminals")
    await page.get_by_role("link", name="Use").click(timeout=PATIENCE_MS)
    await page.get_by_role("button", name="End", exact=True).click(timeout=PATIENCE_MS)
    await expect(dialog).to_contain_text("Everything that the shell has started is ended")
    await dialog.get_by_role("button", name="End").click()
    await expect(page.get_by_label("Name")).to_be_visible(timeout=PATIENCE_MS)
    assert served.plane.kept_shells.list(session) == []


async def test_a_level_of_single_commands_says_why_there_is_no_shell(
    console: Console, served: ServedPlane
) -> None:
    session = await served.session(permission_level="medium")
    await console.go(f"sessions/{session.id}/shells")
    await console.shows("The level medium has no shell")
    await expect(command(console)).to_have_count(0)
