"""How soon the console's overview is seen, and how much script it is."""

import gzip
import shutil
from pathlib import Path

from playwright.async_api import Page, async_playwright

from tests.bench.plane import BenchError, Plane
from tests.bench.report import Result

_STATIC = Path(__file__).parents[2] / "api" / "console" / "static"
_PATIENCE_MS = 30_000
_OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
_MOST_MS, _MOST_KB = 1000, 250
# When the browser has painted something.
_PAINTED = """new Promise((resolve) => new PerformanceObserver((list) => {
  for (const {name, startTime} of list.getEntries())
    if (name === "first-contentful-paint") resolve(startTime);
}).observe({type: "paint", buffered: true}))"""
# Marks when the sessions are in the page.
_MARK = """new MutationObserver((_, watch) => {
  if (!document.querySelector(".tiles")) return;
  performance.mark("shown");
  watch.disconnect();
}).observe(document, {subtree: true, childList: true})"""
_SHOWN = "performance.getEntriesByName('shown')[0].startTime"


async def console(plane: Plane, rounds: int) -> list[Result]:
    """The overview is loaded anew in each round, by a tab that is signed in."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise BenchError("no chromium: `make browser` installs it")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=_OPTIONS)
        page = await browser.new_page()
        await page.add_init_script(_MARK)
        await page.goto(plane.url)
        await page.get_by_label("API key").fill(plane.key)
        await page.keyboard.press("Enter")
        await page.locator(".tiles").wait_for(timeout=_PATIENCE_MS)
        found = [await _load(page) for _ in range(rounds)]
        await browser.close()
    painted, shown = zip(*found, strict=True)
    size = sum(len(gzip.compress(path.read_bytes())) for path in _STATIC.rglob("*.js")) / 1000
    return [
        Result("first paint of the console's overview", painted, "ms", target=_MOST_MS),
        Result("its sessions are shown", shown, "ms", target=_MOST_MS),
        Result("all scripts of the console, compressed", [size], "kB", target=_MOST_KB),
    ]


async def _load(page: Page) -> tuple[float, float]:
    await page.reload()
    await page.locator(".tiles").wait_for(timeout=_PATIENCE_MS)
    return float(await page.evaluate(_PAINTED)), float(await page.evaluate(_SHOWN))
