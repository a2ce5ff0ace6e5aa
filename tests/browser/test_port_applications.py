"""Real programs at their port's own host name, in a browser: JupyterLab, Vite and Next.js.

Their pages name their scripts from the root, and store what they need.
"""

import json
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing

import docker
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from images.builder import build
from images.recipes import find_recipe
from orchestrator.control_plane import ControlPlane
from tests.support.applications import (
    ENVIRONMENT,
    PLACE,
    archive_of,
    npm_project,
    put,
    run_in,
    tree_of,
)
from tests.support.box import Box
from tests.support.console_page import PATIENCE_MS, load
from tests.support.plane import opened
from tests.support.ports import ADMIN, OpenBox, opened_port
from tests.support.previews import Previews, previews

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

TOKEN = secrets.token_hex(16)
CELL: dict[str, object] = {
    "cell_type": "code",
    "execution_count": None,
    "id": "a",
    "metadata": {},
    "outputs": [],
}
BOOK = {
    "cells": [{**CELL, "source": "6 * 7"}],
    "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """With Node.js; the engine keeps the layer with its packages."""
    name = f"paddock/dev:test-{secrets.token_hex(4)}"
    build(name, recipe=find_recipe("dev"), report=lambda _line: None)
    yield name
    with closing(docker.APIClient(version="auto")) as client:
        client.remove_image(name, noprune=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(image: str) -> AsyncIterator[ControlPlane]:
    async with opened(image=image) as plane:
        yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown(plane: ControlPlane) -> AsyncIterator[Previews]:
    async with previews(plane) as found:
        yield found


@asynccontextmanager
async def served(
    box: Box, shown: Previews, port: int, *argv: str, ready: str, **environment: str
) -> AsyncIterator[OpenBox]:
    """A program behind its open port."""
    command = await box.start(argv=list(argv), env=environment, background=True)
    try:
        await box.printed(command, ready)
        yield await opened_port(box, shown, port)
    finally:
        await box.cancel(command)
        await box.plane.ports.close(ADMIN, box.session, port)
        await box.close()


async def test_jupyterlab_runs_a_cell(
    plane: ControlPlane, shown: Previews, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The kernel's WebSocket stays, and the page finds its kernel again after it is reloaded."""
    box = await Box.create(plane, "high")
    await put(box, archive_of("jupyterlab", tmp_path_factory.mktemp("applications")))
    await box.write("book.ipynb", json.dumps(BOOK).encode())
    share = f"/workspace/{PLACE}/share/jupyter"
    argv = (
        *("python3", "-m", "jupyterlab", "--no-browser", f"--app-dir={share}/lab"),
        *("--ServerApp.ip=127.0.0.1", "--ServerApp.port=8888", "--ServerApp.port_retries=0"),
        f"--IdentityProvider.token={TOKEN}",
    )
    environment = {**ENVIRONMENT, "JUPYTER_PATH": share}
    async with served(box, shown, 8888, *argv, ready="is running at", **environment) as port:
        page = await browser.new_page()
        # When a network interface of the host changes, the browser cuts what it loads, such as a
        # theme, of which a dialog tells; a page whose kernel's connection was cut is loaded again.
        await page.add_locator_handler(
            page.get_by_role("dialog").get_by_role("button", name="OK"), lambda ok: ok.click()
        )
        idle = page.get_by_role("button", name="| Idle")
        link = f"{port.host_link}/lab/tree/book.ipynb?token={TOKEN}"
        await load(page, page.goto(link), idle, seconds=40)
        assert "~" not in page.url
        await _run_cell(page, 1)
        await load(page, page.reload(), idle, seconds=40)
        await _run_cell(page, 2)
        await page.close()


async def _run_cell(page: Page, count: int) -> None:
    """`count` is how many cells its kernel has run then."""
    await page.locator(".jp-CodeCell .jp-InputArea-editor").first.click()
    await page.keyboard.press("Control+Enter")
    prompt = page.locator(".jp-OutputArea-executeResult .jp-OutputPrompt")
    await expect(prompt).to_have_text(f"[{count}]:", timeout=PATIENCE_MS)
    result = page.locator(".jp-OutputArea-executeResult .jp-OutputArea-output")
    await expect(result).to_have_text("42", timeout=PATIENCE_MS)


async def test_vite_replaces_a_module_of_a_page(
    plane: ControlPlane, shown: Previews, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """By its WebSocket, which stays; it listens wherever `localhost` leads."""
    box = await Box.create(plane, "high")
    project = npm_project("vite", tmp_path_factory.mktemp("applications"))
    await box.unpack(tree_of((project, ".")))
    argv = ("node", "node_modules/vite/bin/vite.js", "--port=5173", "--strictPort")
    async with served(box, shown, 5173, *argv, ready="Local:") as port:
        page = await browser.new_page()
        async with page.expect_console_message(lambda it: "connected." in it.text):
            await load(page, page.goto(f"{port.host_link}/"), page.get_by_text("said first"))
        await page.evaluate("window.kept = true")
        await box.write("said.js", b'export const said = "said second";')
        await expect(page.locator("#said")).to_have_text("said second", timeout=PATIENCE_MS)
        assert await page.evaluate("window.kept")
        await load(page, page.reload(), page.get_by_text("said second"))
        await page.close()


async def test_a_page_of_next_works(
    plane: ControlPlane, shown: Previews, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As it is deployed; its page is alive only with its scripts, which are named from the root."""
    box = await Box.create(plane, "high")
    project = npm_project("next", tmp_path_factory.mktemp("applications"))
    run_in(project, "node", "node_modules/next/dist/bin/next", "build")
    built = project / ".next"
    await box.unpack(tree_of((built / "standalone", "."), (built / "static", ".next/static")))
    environment = {"PORT": "3000", "HOSTNAME": "127.0.0.1"}
    async with served(
        box, shown, 3000, "node", "server.js", ready="Ready in", **environment
    ) as port:
        page = await browser.new_page()
        await load(page, page.goto(f"{port.host_link}/"), page.get_by_text("clicked 0"))
        for _ in range(2):
            alive = page.locator("button[data-alive]")
            await load(page, page.reload(), alive)
            await alive.click()
            await expect(alive).to_have_text("clicked 1", timeout=PATIENCE_MS)
        await page.close()
