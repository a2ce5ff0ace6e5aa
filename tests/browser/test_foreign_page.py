"""A page of another server uses the JavaScript client, if the operator lists its origin."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer
from playwright.async_api import Browser, Page
from playwright.async_api import Error as PlaywrightError

from api.app import create_app
from api.server import http_options
from orchestrator.control_plane import ControlPlane
from tests.support.box import Box
from tests.support.console_page import MOST_LOADS
from tests.support.plane import opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

_PAGE = """<!doctype html>
<script type="importmap">{"imports": {"paddock": "/dist/index.js"}}</script>
"""
# What fails because the browser has cut its connections is told apart.
_JOURNEY = """async (options) => {
    const { Paddock } = await import("paddock");
    const { WANTED, isCut, journey } = await import("/tests/support/journey.js");
    try {
        return { wanted: WANTED, found: await journey(new Paddock(options)) };
    } catch (error) {
        if (isCut(error)) return undefined;
        throw error;
    }
}"""
_COMMAND = """async ([options, id]) => {
    const { Paddock } = await import("paddock");
    try {
        const session = await new Paddock(options).sessions.get(id);
        return (await session.exec("touch taken")).exit_code;
    } catch (error) {
        return error.name;
    }
}"""
# What a page can send without being asked whether it may: no credential.
_BLIND = """async ([options, id]) => {
    const url = `${options.url}/api/sessions/${id}/exec`;
    const body = JSON.stringify({ command: "touch taken" });
    const sent = { method: "POST", mode: "no-cors", credentials: "include", body };
    return (await fetch(url, sent)).type;
}"""
_SOCKET = """([options, id, ticket]) => new Promise((resolve) => {
    const url = `${options.url.replace("http", "ws")}/api/sessions/${id}/terminal`;
    const socket = new WebSocket(url, ["paddock.terminal", `ticket.${ticket}`]);
    socket.onopen = () => resolve("open");
    socket.onerror = () => resolve("refused");
})"""


@asynccontextmanager
async def served(app: web.Application, **options: Any) -> AsyncIterator[str]:
    """The origin at which it is served."""
    server = TestServer(app)
    await server.start_server(**options)
    async with server:
        yield str(server.make_url("")).rstrip("/")


def pages_of(package: Path) -> web.Application:
    """A server of a page, and of the built client."""

    async def page(_request: web.Request) -> web.Response:
        return web.Response(text=_PAGE, content_type="text/html")

    app = web.Application()
    app.router.add_get("/", page)
    for folder in ("dist", "tests"):
        app.router.add_static(f"/{folder}/", package / folder)
    return app


@dataclass
class Pages:
    """Servers of the same page, of which one is listed, and a control plane."""

    listed: str
    other: str
    plane: ControlPlane
    # The client's.
    options: dict[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pages(sandbox_image: str, javascript_package: Path) -> AsyncIterator[Pages]:
    async with (
        served(pages_of(javascript_package)) as listed,
        served(pages_of(javascript_package)) as other,
        opened(image=sandbox_image, cors_origins=(listed,)) as plane,
        served(create_app(plane), **http_options(plane), shutdown_timeout=0.1) as url,
    ):
        key = (plane.settings.state_dir / "admin.key").read_text().strip()
        yield Pages(listed, other, plane, {"url": url, "key": key})


async def found_at(page: Page, origin: str, script: str, given: Any, again: Any = None) -> Any:
    """What a script returns in a page of that origin, unless its connections were cut.

    Then it returns `again`, and is repeated.
    A browser cuts them whenever a network interface of the host comes or goes, such as a
    container's.
    """
    for _ in range(MOST_LOADS):
        with suppress(PlaywrightError):
            await page.goto(f"{origin}/")
            found = await page.evaluate(script, given)
            if found != again:
                return found
    raise AssertionError("the page does not load")


async def test_a_listed_page_does_all_that_a_program_does(pages: Pages, browser: Browser) -> None:
    page = await browser.new_page()
    made = await found_at(page, pages.listed, _JOURNEY, pages.options)
    assert made["found"] == made["wanted"]
    await page.close()


async def test_another_page_does_nothing_even_with_a_key(pages: Pages, browser: Browser) -> None:
    box = await Box.create(pages.plane, "high")
    page = await browser.new_page()
    given = [pages.options, box.session.id]
    assert await found_at(page, pages.other, _COMMAND, given) == "ConnectionLostError"
    assert await found_at(page, pages.other, _BLIND, given) == "opaque"
    ticket = await page.context.request.post(
        f"{pages.options['url']}/api/tickets",
        headers={"Authorization": f"Bearer {pages.options['key']}"},
        data={"session_id": box.session.id},
    )
    offered = [*given, (await ticket.json())["ticket"]]
    assert await found_at(page, pages.other, _SOCKET, offered) == "refused"
    assert (await box.run(argv=["ls"])).stdout == ""
    assert box.session.terminals == set()
    # The same call of a listed page takes effect.
    assert await found_at(page, pages.listed, _COMMAND, given, again="ConnectionLostError") == 0
    assert (await box.run(argv=["ls"])).stdout == "taken\n"
    await page.close()
    await box.close()
