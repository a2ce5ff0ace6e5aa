"""What a page at its port's own host name may do in a real browser, and what it may not."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from orchestrator.control_plane import ControlPlane
from tests.support.box import Box
from tests.support.ports import OpenBox, opened_port, web_server
from tests.support.previews import Previews, previews

pytestmark = pytest.mark.asyncio(loop_scope="module")

# It has no icon for the browser to ask for, at a time of its own.
_PAGE = b'<!doctype html><title>page</title><link rel="icon" href="data:,"><p>page</p>'
# Each member is a value, or the name of the error.
_TRIES = """async ({other, worker}) => {
  const element = (name, source) => new Promise((resolve) => {
    const made = document.createElement(name);
    made.onload = () => {
      try { resolve(made.contentDocument === null ? "closed" : "read"); }
      catch (error) { resolve(error.name); }
    };
    made.onerror = () => resolve("refused");
    made.src = source;
    document.body.append(made);
  });
  const tries = {
    origin: async () => self.origin === location.origin,
    storage: async () => { localStorage.setItem("a", "own"); return localStorage.getItem("a"); },
    root: async () => (await fetch("/data.json")).json(),
    worker: async () => {
      const made = await navigator.serviceWorker.register(worker);
      return String(new URL(made.scope).pathname);
    },
    cookie: async () => {
      document.cookie = "own=1";
      document.cookie = "wide=1; domain=localhost";
      return document.cookie;
    },
    fetched: async () => (await fetch(other + "/data.json", {credentials: "include"})).text(),
    posted: async () => {
      const sent = {method: "POST", mode: "no-cors", credentials: "include"};
      return (await fetch(other + "/data.json", sent)).type;
    },
    script: async () => element("script", other + "/script.js"),
    frame: async () => element("iframe", other + "/"),
    socket: () => new Promise((resolve) => {
      const socket = new WebSocket(other.replace("http", "ws") + "/");
      socket.onopen = () => resolve("open");
      socket.onerror = () => resolve("refused");
    }),
  };
  const found = {};
  for (const [name, attempt] of Object.entries(tries)) {
    try { found[name] = await attempt(); } catch (error) { found[name] = error.name; }
  }
  return found;
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown(control_plane: ControlPlane) -> AsyncIterator[Previews]:
    async with previews(control_plane) as found:
        yield found


async def port_of(control_plane: ControlPlane, shown: Previews) -> OpenBox:
    box = await Box.create(control_plane, "high")
    for name, data in (
        ("index.html", _PAGE),
        ("data.json", b'{"answer": 42}'),
        ("script.js", b"window.taken = true;"),
        ("worker.js", b"self.addEventListener('install', () => {});"),
    ):
        await box.write(name, data)
    await web_server(box)
    return await opened_port(box, shown, 8000)


async def test_a_page_has_its_own_origin_and_no_other(
    control_plane: ControlPlane, shown: Previews, browser: Browser
) -> None:
    """In a browser that has followed the links of both."""
    page_port, other = [await port_of(control_plane, shown) for _ in range(2)]
    context = await browser.new_context()
    theirs = await context.new_page()
    await theirs.goto(f"{other.host_link}/")
    assert theirs.url == f"{other.host}/"
    await theirs.evaluate("localStorage.setItem('secret', 'theirs')")
    before = other.box.session.ports.open[8000].requests
    page = await context.new_page()
    await page.goto(f"{page_port.host_link}/")
    found = await page.evaluate(_TRIES, {"other": other.host, "worker": "/worker.js"})
    assert found == {
        "origin": True,
        "storage": "own",
        "root": {"answer": 42},
        "worker": "/",
        "cookie": "own=1",
        "fetched": "TypeError",
        # Sent, and refused before it reaches the program.
        "posted": "opaque",
        "script": "refused",
        "frame": "closed",
        "socket": "refused",
    }
    assert await page.evaluate("localStorage.getItem('secret')") is None
    # Nothing of it has reached the other program.
    assert other.box.session.ports.open[8000].requests == before
    assert await theirs.evaluate("document.cookie") == ""
    assert not await page.evaluate("window.taken === true")
    # A reader may be led there.
    await page.goto(f"{other.host}/data.json")
    assert "42" in await page.content()
    await context.close()
    for each in (page_port, other):
        await each.box.close()
