"""A page from a sandbox in a real browser: it works, and has no power over other origins."""

import asyncio
import json
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import unquote

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestServer

from api.app import create_app
from orchestrator.control_plane import ControlPlane
from tests.support.box import Box
from tests.support.ports import WEBSOCKET, listening, opened_port, web_server
from tests.support.previews import Previews, previews

pytestmark = pytest.mark.asyncio(loop_scope="module")

_PAGE = b"""<!doctype html>
<link rel="stylesheet" href="sub/style.css"><script type="module" src="sub/app.js"></script>
<p id="styled">text</p>
"""
_STYLE = b"#styled { position: absolute; width: 123px; }"
# Requests `report?…` in the end: each member is a value, or the name of the error.
_SCRIPT = b"""
const place = new URLSearchParams(location.search);
const tries = {
  relative: async () => (await fetch("data.json")).json(),
  origin: async () => self.origin,
  width: async () => getComputedStyle(document.getElementById("styled")).width,
  socket: () => new Promise((resolve, reject) => {
    const socket = new WebSocket(place.get("socket"));
    socket.onopen = () => socket.send("over and back");
    socket.onmessage = (event) => resolve(event.data);
    socket.onerror = () => reject(new Error("socket"));
  }),
  cookie: async () => { document.cookie = "a=b"; return document.cookie; },
  storage: async () => localStorage.setItem("a", "b"),
  worker: async () => String(await navigator.serviceWorker.register("sub/app.js")),
  api: async () => (await fetch(place.get("api"), {credentials: "include"})).text(),
  other: async () => (await fetch(place.get("other"), {credentials: "include"})).text(),
};
const found = {};
for (const [name, attempt] of Object.entries(tries)) {
  try { found[name] = await attempt(); } catch (error) { found[name] = error.name; }
}
await fetch("report?" + encodeURIComponent(JSON.stringify(found)));
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown(control_plane: ControlPlane) -> AsyncIterator[Previews]:
    async with previews(control_plane) as found:
        yield found


async def test_a_page_works_and_reaches_only_its_own_port(
    control_plane: ControlPlane, shown: Previews, tmp_path: Path
) -> None:
    box, other = [await Box.create(control_plane, "high") for _ in range(2)]
    await box.mkdir("sub")
    for name, data in (
        ("index.html", _PAGE),
        ("data.json", b'{"answer": 42}'),
        ("sub/style.css", _STYLE),
        ("sub/app.js", _SCRIPT),
    ):
        await box.write(name, data)
    await other.write("index.html", b"the other session's")
    program, _ = [await web_server(each) for each in (box, other)]
    await listening(box, "python3", "-c", WEBSOCKET, ready="ready")
    page, socket = [await opened_port(box, shown, port) for port in (8000, 8765)]
    neighbour = await opened_port(other, shown, 8000)
    without_token = neighbour.link.rpartition("~")[0]
    async with TestServer(create_app(control_plane)) as api:
        url = (
            f"{shown.origin}{page.link}/"
            f"?socket={shown.origin.replace('http', 'ws')}{socket.link}/"
            f"&api={api.make_url('/api/sessions')}&other={shown.origin}{without_token}"
        )
        async with _browser(url, tmp_path):
            said = await box.printed(program, '" 404 -')
    report = re.search(r"report\?(\S+)", said)
    assert report is not None, said
    found = json.loads(unquote(report[1]))
    works = {"relative": {"answer": 42}, "origin": "null", "width": "123px"}
    assert {name: found.pop(name) for name in works} == works
    assert found.pop("socket") == "over and back"
    security = dict.fromkeys(("cookie", "storage", "worker"), "SecurityError")
    assert found == {**security, **dict.fromkeys(("api", "other"), "TypeError")}


@asynccontextmanager
async def _browser(url: str, directory: Path) -> AsyncIterator[None]:
    """A browser that has never been used, and shows the page."""
    chromium = shutil.which("chromium")
    assert chromium is not None, "no chromium: `make browser` installs it"
    process = await asyncio.create_subprocess_exec(
        *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--no-first-run", "--disable-extensions", f"--user-data-dir={directory}"),
        *("--remote-debugging-port=0", url),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
