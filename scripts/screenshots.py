"""Makes docs/images/console-*.png: `python -m scripts.screenshots` pictures every page.

It runs a control plane of its own with sessions at work, for a minute, so that there is something
to see, and leaves nothing behind.
"""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.resources import files
from pathlib import Path

from aiohttp import web
from playwright.async_api import Page, ViewportSize, async_playwright

from api.app import create_app
from api.server import http_options
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.limits import KeyLimits
from orchestrator.rules.access.key_bounds import KeyBounds
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.settings.operator_models import OperatorModel
from paddock import Paddock, PaddockAPIError
from paddock.client.session import Session
from tests.support.models import Answer, calling, model_server
from tests.support.plane import clear, opened

IMAGES = Path(__file__).parents[1] / "docs" / "images"
SIZE: ViewportSize = {"width": 1280, "height": 800}
# The picture of a thread shows more of it.
TALL: ViewportSize = {"width": 1280, "height": 1150}
_SAMPLES = 50
_KEYS_FILE = "/var/lib/paddock/keys.toml"
_BUSY = "while sleep 0.$((RANDOM % 10)); do for i in {1..COUNT}; do :; done; done"
_DENIED = (["curl", "https://example.com"], ["cat", "/etc/passwd"], ["curl", "evil.example"])
# By id: level, the commands that it runs, and how busy it is.
SESSIONS = {
    "docs-search": ("low", (["ls", "-la"], ["grep", "-rn", "TODO", "."], *_DENIED), 0),
    "web-agent": ("medium", (["date"], ["curl", "-s", "https://pypi.org"], ["gcc", "a.c"]), 0),
    "build-42": ("high", (["python3", "-c", "print(6 * 7)"], ["git", "--version"]), 90_000),
    "etl-nightly": ("high", (["python3", "--version"],), 30_000),
    "review-bot": ("medium", (["uname", "-a"], ["env"], ["rm", "/etc/hosts"]), 0),
}
_SOURCE = '''"""Counts words."""

import re
from collections import Counter

WORD = re.compile(r"[a-z']+")


def most_common(text: str, number: int = 10) -> list[tuple[str, int]]:
    """The words that occur most often, with their counts."""
    # In any case: The and the are one word.
    return Counter(WORD.findall(text.lower())).most_common(number)
'''
_LOGIN = """TRIES = 3

def may_try(tries: int) -> bool:
    return tries < TRIES
"""
_POLICY = {"extends": "SAFE_EDIT", "world_rules": {"write_patterns": ["src/**/*", "test/**/*"]}}
# The turns of a session in proposal mode.
_TURNS = (
    '(map string-length (list (world.read "src/login.py")))',
    '(world.read ".env")',
    """(begin
  (world.write "src/login.py" (replace (world.read "src/login.py") "TRIES = 3" "TRIES = 5"))
  (world.write "test/test_login.py" "from login import may_try\\n\\nassert may_try(4)\\n"))""",
)
_RUNS = {
    "allowed_operations": ["llm.complete", "world.read", "world.write", "world.exec"],
    "denied_operations": [],
    "world_rules": {"write_patterns": ["src/**/*"], "read_only": False},
    "llm_rules": {"allow_complete": True, "max_tokens_per_call": 1000},
    "execution_rules": {"allow_shell_commands": True, "allow_network_calls": True},
}
# A run that repairs a package, and is refused what its policy does not permit.
_SUMS = "def add(a, b):\n    return a - b\n"
_SUMS_TEST = """import unittest
from sums import add


class SumsTest(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(2, 2), 4)
"""
_TEST = ("exec", {"argv": ["bash", "-c", "cd src && python3 -B -m unittest test_sums"]})
_ANSWERS = (
    calling(_TEST, ("read_file", {"path": "src/sums.py"}), text="I run the tests first."),
    calling(
        ("write_file", {"path": ".github/check.yml", "text": "on: push\n"}),
        ("write_file", {"path": "src/sums.py", "text": _SUMS.replace("-", "+")}),
        _TEST,
        text="The sign is wrong. I repair it, and add a check.",
    ),
    Answer("The test passes now: add() subtracted. I could not add a check outside of src."),
)
# By what a shell shows before: what is typed in it.
_TYPED = {
    "$": "ls -la --color",
    "README.md": "python3 -c 'from src.words import *; print(most_common(\"to be or not to be\"))'",
}
# By picture: the page's address, and a text that is there once it is complete.
PAGES = {
    "overview": ("sessions?by=cpu&down=1", "command-allowlist"),
    "approvals": ("approvals", "Exactly this is sent"),
    "audit": ("audit?decision=deny", "Save all"),
    "policies": ("policies?level=low&command=curl%20https%3A%2F%2Fexample.com", "May do"),
    "keys": ("keys", "prometheus"),
    "system": ("system", "running commands"),
    "session": ("sessions/docs-search", "cat /etc/passwd"),
    "level": ("sessions/web-agent/level", "medium"),
    "turns": ("sessions/fix-login/turns", "Turn 3"),
    "run": ("sessions/fix-sums/run", "Run 1 has ended"),
    "proposals": ("sessions/fix-login/proposals", "Commit all"),
    "processes": ("sessions/build-42/processes", "sandbox agent"),
    "files": ("sessions/build-42/files?path=src%2Fwords.py", "return"),
}
_KEYS = (
    Principal(
        "ci",
        Role.OPERATOR,
        limits=KeyLimits(max_sessions=8, max_cpus=8.0),
        bounds=KeyBounds(max_level="medium"),
    ),
    Principal("dashboard", Role.VIEWER),
    Principal("prometheus", Role.METRICS),
)


@asynccontextmanager
async def _served(directory: Path) -> AsyncIterator[tuple[ControlPlane, str]]:
    """A control plane whose Python asks a person before it names something."""
    tools = directory / "tools"
    tools.mkdir()
    manifest = (files("orchestrator.rules.tools") / "manifests" / "python3.clad.toml").read_text()
    asks = "[session.commands.assign]\nhuman_approval = true\n"
    text = manifest.replace("[session.commands.assign]\n", asks)
    (tools / "python3.clad.toml").write_text(text)
    room = {"min_free_memory_bytes": 2**29, "min_free_disk_bytes": 2**30}
    async with opened(tools_dir=tools, **room) as plane:
        runner = web.AppRunner(create_app(plane), handler_cancellation=True, **http_options(plane))
        try:
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield plane, f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()
            await clear(plane)


async def _work(paddock: Paddock) -> None:
    for name, (level, commands, busy) in SESSIONS.items():
        budget = {"commands": 20, "cpu_seconds": 600}
        session = await paddock.sessions.create(id=name, permission_level=level, budget=budget)
        for argv in commands:
            with suppress(PaddockAPIError):
                await session.exec(argv=argv)
        if busy:
            await session.processes.start(argv=["bash", "-c", _BUSY.replace("COUNT", str(busy))])
    build = await paddock.sessions.get("build-42")
    await build.files.write("src/words.py", _SOURCE, parents=True)
    await build.files.write("README.md", "# Words\n")
    await _ask(build)
    await _propose(paddock)
    await _send(paddock)
    short = await paddock.sessions.create(id="spent", budget={"commands": 1})
    for _ in range(2):
        with suppress(PaddockAPIError):
            await short.exec(argv=["date"])
    await (await paddock.sessions.create(id="refactor")).close()


async def _propose(paddock: Paddock) -> None:
    """Turns that stage changes of a committed file."""
    session = await paddock.sessions.create(id="fix-login", policy=_POLICY)
    await session.files.write("src/login.py", _LOGIN, parents=True)
    await session.proposals.commit()
    for code in _TURNS:
        await session.turns.run(code)


async def _send(paddock: Paddock) -> None:
    """A run of the scripted model."""
    session = await paddock.sessions.create(id="fix-sums", permission_level="high", policy=_RUNS)
    await session.files.write("src/sums.py", _SUMS, parents=True)
    await session.files.write("src/test_sums.py", _SUMS_TEST)
    await session.send("A test fails: repair the package.")


async def _ask(session: Session) -> None:
    terminal = await session.terminals.open("python3")
    await terminal.send("calculate", "(2 + 3) * 4")
    await terminal.send("assign", "sizes = [3, 5, 8]")


async def _take(url: str, key: str) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = await browser.new_page(viewport=SIZE)
        await page.goto(url)
        await page.get_by_label("API key").fill(key)
        await page.keyboard.press("Enter")
        await page.locator("h1").wait_for()
        for name, (place, text) in PAGES.items():
            await page.goto(f"{url}/#/{place}")
            await page.get_by_text(text).first.wait_for()
            if name == "turns":
                await page.get_by_text("Turn 3").click()
                await page.get_by_text("test_login").first.wait_for()
            if name == "policies":
                await page.get_by_role("button", name="Explain").click()
                await page.get_by_label("the verdict").wait_for()
            if name == "keys":
                # As on a server, not in this run's temporary directory.
                await page.locator(".head code").evaluate(
                    f"(code) => code.textContent = '{_KEYS_FILE}'"
                )
            await page.set_viewport_size(TALL if name == "run" else SIZE)
            await page.screenshot(path=IMAGES / f"console-{name}.png")
        await _in_a_shell(page, url)
        await _in_the_dark(page, url)
        await browser.close()


async def _in_a_shell(page: Page, url: str) -> None:
    await page.goto(f"{url}/#/sessions/build-42/shell")
    await page.get_by_role("button", name="Open a shell").click()
    shown = page.locator(".xterm-rows")
    for before, line in _TYPED.items():
        await shown.get_by_text(before).first.wait_for()
        await page.keyboard.type(f"{line}\n")
    await shown.get_by_text("('not', 1)").wait_for()
    await page.screenshot(path=IMAGES / "console-shell.png")


async def _in_the_dark(page: Page, url: str) -> None:
    """The overview on a phone."""
    await page.emulate_media(color_scheme="dark")
    await page.set_viewport_size({"width": 390, "height": 800})
    await page.goto(f"{url}/#/sessions")
    await page.get_by_text("command-allowlist").first.wait_for()
    await page.screenshot(path=IMAGES / "console-phone.png")


async def main() -> None:
    """Runs sessions, and takes the pictures."""
    with tempfile.TemporaryDirectory(prefix="paddock-") as directory:
        served, scripted = _served(Path(directory)), model_server(*_ANSWERS)
        async with served as (plane, url), scripted as server:
            small = OperatorModel.model_validate(server.setting())
            plane.models.configured["small"] = small
            key = (plane.settings.state_dir / "admin.key").read_text().strip()
            async with Paddock(url, key) as paddock:
                for each in _KEYS:
                    await plane.key_edits.create("admin", each)
                await _work(paddock)
                for _ in range(_SAMPLES):
                    await plane.usage.sample()
                    await asyncio.sleep(1)
                await _take(url, key)


if __name__ == "__main__":
    asyncio.run(main())
