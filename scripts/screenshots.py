"""Makes docs/images/console-*.png: pages of the console of a running control plane.

Start a control plane first, then run `python -m scripts.screenshots`. Its sessions are removed.
"""

import asyncio
import shutil
from contextlib import suppress
from pathlib import Path

from playwright.async_api import async_playwright

from orchestrator.config import instance_url
from orchestrator.config.settings import load_settings
from paddock import Paddock, PermissionDeniedError

IMAGES = Path(__file__).parents[1] / "docs" / "images"
SIZE = {"width": 1200, "height": 640}
SESSIONS = (
    (
        "docs-search",
        "low",
        (["ls", "-la"], ["curl", "https://example.com"], ["cat", "/etc/passwd"]),
    ),
    ("web-agent", "medium", (["date"], ["curl", "-s", "https://example.com"], ["gcc", "a.c"])),
    ("build-42", "high", (["python3", "-c", "print(6 * 7)"], ["git", "--version"])),
)
# By picture: the page's address, and a text that is there once it is complete.
PAGES = {
    "overview": ("sessions", "command-allowlist"),
    "session": ("sessions/docs-search", "cat /etc/passwd"),
    "level": ("sessions/web-agent/level", "22 commands"),
}


async def _work(paddock: Paddock) -> None:
    for name, level, commands in SESSIONS:
        budget = {"commands": 20, "cpu_seconds": 60}
        session = await paddock.sessions.create(id=name, permission_level=level, budget=budget)
        for argv in commands:
            with suppress(PermissionDeniedError):
                await session.exec(argv=argv)


async def _take(url: str, key: str) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = await browser.new_page(viewport=SIZE)  # type: ignore[arg-type]
        await page.goto(url)
        await page.get_by_label("API key").fill(key)
        await page.keyboard.press("Enter")
        for name, (place, text) in PAGES.items():
            await page.goto(f"{url}/#/{place}")
            await page.get_by_text(text).first.wait_for()
            await page.screenshot(path=IMAGES / f"console-{name}.png")
        await browser.close()


async def main() -> None:
    """Runs sessions, and takes the pictures."""
    settings = load_settings()
    url = instance_url.find_url(settings)
    key = (settings.state_dir / "admin.key").read_text().strip()
    async with Paddock(url, key) as paddock:
        try:
            await _work(paddock)
            await _take(url, key)
        finally:
            for name, _, _ in SESSIONS:
                await paddock.sessions.close(name, purge=True)


if __name__ == "__main__":
    asyncio.run(main())
