"""A real Streamlit application behind an opened port, in a browser."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from orchestrator.control_plane import ControlPlane
from tests.support.applications import ENVIRONMENT, archive_of, put
from tests.support.box import Box
from tests.support.console_page import PATIENCE_MS, load
from tests.support.ports import ADMIN, OpenBox, opened_port
from tests.support.previews import Previews, previews

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

PORT = 8501
APPLICATION = b"""
import streamlit
streamlit.write("said by the application")
streamlit.write("typed: " + streamlit.text_input("name"))
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown(control_plane: ControlPlane) -> AsyncIterator[Previews]:
    async with previews(control_plane) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Box:
    box = await Box.create(control_plane, "high")
    await put(box, archive_of("streamlit", tmp_path_factory.mktemp("applications")))
    await box.write("app.py", APPLICATION)
    return box


@asynccontextmanager
async def served(box: Box, shown: Previews, *, based: bool) -> AsyncIterator[OpenBox]:
    """The application behind its open port; `based`: below its link's path."""
    port = await opened_port(box, shown, PORT)
    options = [
        *("--server.headless=true", "--browser.gatherUsageStats=false"),
        *("--server.address=127.0.0.1", f"--server.port={PORT}"),
        *("--server.fileWatcherType=none", "--global.developmentMode=false"),
        *([f"--server.baseUrlPath={port.link}"] if based else []),
    ]
    command = await box.start(
        argv=["python3", "-m", "streamlit", "run", "app.py", *options],
        env=ENVIRONMENT,
        background=True,
    )
    try:
        await box.printed(command, "URL: ")
        yield port
    finally:
        await box.cancel(command)
        await box.plane.ports.close(ADMIN, box.session, PORT)


@pytest.mark.parametrize("address", ["host", "path", "base path"])
async def test_its_page_shows_what_it_says(
    box: Box, shown: Previews, browser: Browser, address: str
) -> None:
    """The page's scripts show it, which they get by the WebSocket; what is typed returns by it."""
    async with served(box, shown, based=address == "base path") as port:
        page = await browser.new_page()
        link = port.host_link if address == "host" else f"{shown.origin}{port.link}"
        # The field's script is requested only when it is shown.
        field = page.get_by_label("name")
        await load(page, page.goto(f"{link}/"), field, seconds=30)
        await load(page, page.reload(), field, seconds=30)
        await expect(page.get_by_text("said by the application")).to_be_visible(timeout=PATIENCE_MS)
        await field.fill("paddock", timeout=PATIENCE_MS)
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("typed: paddock")).to_be_visible(timeout=PATIENCE_MS)
        await page.close()
