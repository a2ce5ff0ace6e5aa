"""What axe-core finds wrong with a page of the console."""

from pathlib import Path

from playwright.async_api import Page

_AXE = (Path(__file__).parents[1] / "browser" / "vendor" / "axe.js").read_text()
# The violations that matter, with the elements that they are about.
_CHECK = """async (rules) => (await axe.run(document, {
    resultTypes: ["violations"], ...(rules && {runOnly: rules})})).violations
  .filter(({impact}) => ["serious", "critical"].includes(impact))
  .map(({id, nodes}) => `${id}: ${nodes.map(({html, failureSummary}) =>
    `${html.slice(0, 200)} ${failureSummary}`).join(" | ")}`)"""


async def violations(page: Page) -> list[str]:
    """In the light theme, and in the dark one, which differs in its colours only."""
    await page.evaluate(_AXE)
    await page.emulate_media(color_scheme="light")
    found: list[str] = await page.evaluate(_CHECK, None)
    await page.emulate_media(color_scheme="dark")
    found += await page.evaluate(_CHECK, ["color-contrast"])
    return found
