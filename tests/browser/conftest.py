"""Fixtures: one server and one browser per module, and a signed-in page per test."""

import shutil
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestServer
from playwright.async_api import Browser, async_playwright, expect

from api.app import create_app
from api.server import http_options
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import PaddockError
from tests.support.box import Box
from tests.support.console_page import HOSTILE, PATIENCE_MS, Console, opened
from tests.support.served_plane import ServedPlane, served_plane


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    chromium = shutil.which("chromium")
    assert chromium is not None, "no chromium: `make browser` installs it"
    expect.set_options(timeout=PATIENCE_MS)
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


@pytest_asyncio.fixture(loop_scope="module")
async def console(
    browser: Browser, address: str, control_plane: ControlPlane
) -> AsyncIterator[Console]:
    key = (control_plane.settings.state_dir / "admin.key").read_text().strip()
    async with opened(browser, address) as console:
        await console.sign_in(key)
        yield console


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[ServedPlane]:
    """A control plane without containers."""
    async with served_plane() as served:
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(control_plane: ControlPlane) -> Box:
    box = await Box.create(control_plane, "medium")
    await box.write("notes.txt", f"first line\n{HOSTILE}\n".encode())
    await box.run(argv=["echo", HOSTILE])
    with pytest.raises(PaddockError):
        await box.run(argv=["gcc", HOSTILE])
    return box
