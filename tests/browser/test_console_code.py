"""Code cells in the console, without containers: their program follows a script."""

import base64
import zlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, expect

from tests.support.accessibility import violations
from tests.support.console_page import HOSTILE, PATIENCE_MS, Console, opened
from tests.support.fake_runner import FakeRunner
from tests.support.served_plane import KEY, ServedPlane, served_plane
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

SVG = "<svg xmlns='http://www.w3.org/2000/svg' onload='document.title=1'></svg>"


def chunk(kind: bytes, data: bytes) -> bytes:
    checked = kind + data
    return len(data).to_bytes(4, "big") + checked + zlib.crc32(checked).to_bytes(4, "big")


# A grey PNG, three pixels wide.
HEAD = (3).to_bytes(4, "big") + (1).to_bytes(4, "big") + bytes((8, 0, 0, 0, 0))
PNG = b"\x89PNG\r\n\x1a\n" + b"".join(
    (chunk(b"IHDR", HEAD), chunk(b"IDAT", zlib.compress(b"\0abc")), chunk(b"IEND", b""))
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[ServedPlane]:
    async with served_plane() as served:
        served.agents.plays["python3"] = FakeRunner().play()
        yield served


@pytest_asyncio.fixture(loop_scope="module")
async def console(browser: Browser, served: ServedPlane) -> AsyncIterator[Console]:
    async with opened(browser, served.address) as console:
        await console.sign_in(KEY)
        yield console


async def run(console: Console, code: str, number: int) -> Locator:
    """Runs a cell by keyboard; the region that has it."""
    editor = console.page.get_by_label("Code", exact=True)
    await editor.fill(code, timeout=PATIENCE_MS)
    await editor.press("Control+Enter")
    return console.page.get_by_role("region", name=f"cell {number}", exact=True)


async def test_cells_show_text_values_pictures_and_tracebacks(
    console: Console, served: ServedPlane
) -> None:
    page = console.page
    session = await served.session(permission_level="high")
    await console.go(f"sessions/{session.id}/code")
    picture = base64.b64encode(PNG).decode()
    cell = await run(console, f"print {HOSTILE}\nshow image/png {picture}\nraise wrong", 1)
    await expect(cell).to_contain_text("U+202Etxt", timeout=PATIENCE_MS)
    plot = cell.get_by_role("img")
    await expect(plot).to_have_js_property("naturalWidth", 3, timeout=PATIENCE_MS)
    await expect(cell).to_contain_text("Traceback: wrong")
    await expect(cell).to_contain_text("error")
    # Markup is source text.
    cell = await run(console, f"show image/svg+xml {SVG}", 2)
    await expect(cell.get_by_label("svg", exact=True)).to_have_text(SVG, timeout=PATIENCE_MS)
    cell = await run(console, f"show text/html {HOSTILE}", 3)
    await expect(cell.get_by_label("html", exact=True)).to_contain_text(
        "onerror", timeout=PATIENCE_MS
    )
    await expect(page.get_by_role("img")).to_have_count(1)
    await expect(page.locator("main svg[onload]")).to_have_count(0)
    assert await page.title() != "1"
    assert await violations(page) == []
    await page.set_viewport_size({"width": 360, "height": 740})
    await page.wait_for_function("document.documentElement.scrollWidth === 360")
    await page.get_by_role("button", name="Edit cell 3 again").click()
    editor = page.get_by_label("Code", exact=True)
    await expect(editor).to_be_focused()
    await expect(editor).not_to_have_value("")


async def test_what_is_printed_comes_while_the_cell_goes_on_and_it_is_interrupted(
    console: Console, served: ServedPlane
) -> None:
    page = console.page
    session = await served.session(permission_level="high")
    await console.go(f"sessions/{session.id}/code")
    cell = await run(console, "print before\nhang", 1)
    await expect(cell.get_by_label("stdout")).to_have_text("before", timeout=PATIENCE_MS)
    await expect(cell).to_contain_text("running")
    controls = page.get_by_role("region", name="new cell")
    await controls.get_by_role("button", name="Interrupt").click(timeout=PATIENCE_MS)
    await expect(cell).to_contain_text("interrupted", timeout=PATIENCE_MS)
    # A restart begins another program.
    before = set(session.commands)
    await controls.get_by_role("button", name="Restart").click(timeout=PATIENCE_MS)
    await until(lambda: bool(set(session.commands) - before))
    await expect(controls.get_by_role("status")).to_have_text("fake-1: idle", timeout=PATIENCE_MS)
    cell = await run(console, "value 42", 2)
    await expect(cell.get_by_label("value")).to_have_text("42", timeout=PATIENCE_MS)


async def test_leaving_the_tab_interrupts_its_cell(console: Console, served: ServedPlane) -> None:
    session = await served.session(permission_level="high")
    await console.go(f"sessions/{session.id}/code")
    cell = await run(console, "print before\nhang", 1)
    await expect(cell.get_by_label("stdout")).to_have_text("before", timeout=PATIENCE_MS)
    await console.go(f"sessions/{session.id}/activity")
    await console.shows("code.exit")


async def test_a_level_of_single_commands_says_why_there_is_no_code(
    console: Console, served: ServedPlane
) -> None:
    session = await served.session(permission_level="medium")
    await console.go(f"sessions/{session.id}/code")
    await console.shows("The level medium has no code cells")
    await expect(console.page.get_by_role("link", name="Raise the level")).to_be_visible()
    await expect(console.page.get_by_label("Code", exact=True)).to_have_count(0)
