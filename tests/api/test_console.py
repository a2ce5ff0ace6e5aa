"""The console's files: who gets them, with what headers, and that they fit together."""

import gzip
import re
from importlib.resources import files
from pathlib import Path

import pytest

from tests.api.conftest import Api

STATIC = Path(str(files("api") / "console" / "static"))
SCRIPTS = sorted(path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*.js"))
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
IMPORT = re.compile(r'^(?:import|export) .*? from "(.+?)";$', re.M)
LATER = re.compile(r'\bimport\("(.+?)"\)')


async def test_a_browser_gets_the_console_and_a_program_the_description(api: Api) -> None:
    page = await api.client.get("/", headers=BROWSER)
    assert (page.status, page.content_type) == (200, "text/html")
    assert "/console/main.js" in await page.text()
    about = await api.client.get("/")
    assert (await about.json())["openapi"] == "/api/openapi.json"


async def test_pages_may_run_and_load_only_what_is_ours(api: Api) -> None:
    policy = (await api.client.get("/", headers=BROWSER)).headers["Content-Security-Policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert "unsafe" not in policy
    html = (STATIC / "index.html").read_text()
    assert not re.search(r"<script(?![^>]* src=)|<style| on\w+=|style=|https?:", html)


async def test_files_are_kept_and_asked_for_again_by_their_tags(api: Api) -> None:
    first = await api.client.get("/console/style.css")
    assert (first.content_type, first.headers["Cache-Control"]) == ("text/css", "no-cache")
    tag = first.headers["ETag"]
    again = await api.client.get("/console/style.css", headers={"If-None-Match": tag})
    assert (again.status, await again.read()) == (304, b"")
    changed = await api.client.get("/console/style.css", headers={"If-None-Match": '"other"'})
    assert changed.status == 200


@pytest.mark.parametrize(
    "path",
    ["missing.js", "..%2froutes.py", "%2e%2e/routes.py", "vendor", "vendor/README.md", "%00"],
)
async def test_only_the_files_of_pages_are_served(api: Api, path: str) -> None:
    await api.problem(404, "not_found", "GET", f"/console/{path}")


@pytest.mark.parametrize("script", SCRIPTS)
async def test_what_a_script_imports_is_served(api: Api, script: str) -> None:
    for imported in IMPORT.findall((STATIC / script).read_text()):
        found = ((STATIC / script).parent / imported).resolve().relative_to(STATIC.resolve())
        response = await api.client.get(f"/console/{found}")
        assert (response.status, response.content_type) == (200, "text/javascript"), imported


def loaded_with(script: Path) -> set[Path]:
    """A script, and all that a browser loads before it runs it."""
    found, left = set[Path](), [script]
    while left:
        if (each := left.pop()) not in found:
            found.add(each)
            left += [(each.parent / name).resolve() for name in IMPORT.findall(each.read_text())]
    return found


def loaded_later() -> dict[str, set[Path]]:
    """By its name, what a browser loads when a part of the pages is opened first."""
    scripts = [STATIC / script for script in SCRIPTS if not script.startswith("vendor/")]
    return {
        f"{script.name} {name}": loaded_with((script.parent / name).resolve())
        for script in scripts
        for name in LATER.findall(script.read_text())
    }


def compressed(scripts: set[Path]) -> int:
    return sum(len(gzip.compress(script.read_bytes())) for script in scripts)


def test_scripts_are_small() -> None:
    """What the first page needs, and what is added when a part of the console is opened."""
    first, later = loaded_with(STATIC / "main.js"), loaded_later()
    assert compressed(first) <= 128_000
    for name, scripts in later.items():
        assert compressed(scripts - first) <= 100_000, name
    assert {*first}.union(*later.values()) == {STATIC / script for script in SCRIPTS}


def test_no_script_makes_markup_of_text() -> None:
    ours = [script for script in SCRIPTS if not script.startswith("vendor/")]
    for script in ours:
        text = (STATIC / script).read_text()
        assert not re.search(r"innerHTML|insertAdjacent|document\.write|eval\(|Function\(", text)


def test_vendored_files_are_of_the_versions_that_are_named() -> None:
    script = (Path(__file__).parents[2] / "scripts/vendor.sh").read_text()
    table = (STATIC / "vendor/README.md").read_text()
    rows = re.findall(r"^\| `(\S+)` \| `(\S+)` .*? \| (\S+) \|", table, re.M)
    assert rows
    for file, package, version in rows:
        assert f"{package}@{version}" in script
        assert (STATIC / "vendor" / file).is_file()
