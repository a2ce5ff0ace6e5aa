"""The document of tools is accurate: its manifest loads, its scope file is valid."""

from pathlib import Path

from orchestrator.rules.tools.catalog import parse_tool
from orchestrator.rules.tools.oneshot import Oneshot, argv
from orchestrator.rules.tools.scope import load_scope
from orchestrator.rules.tools.session_loader import parse_manifest
from tests.support.documents import blocks

ROOT = Path(__file__).parents[2]


def test_the_manifest_of_the_document_loads() -> None:
    first, *_ = _toml()
    manifest = parse_manifest(first.encode(), "docs/tools.md")
    assert list(manifest.commands) == ["stock", "clear"]


def test_the_scope_files_of_the_document_and_the_example_are_one(tmp_path: Path) -> None:
    second = _toml()[1]
    path = tmp_path / "scope.toml"
    path.write_text(second)
    scope = load_scope(path)
    assert scope.problem is None
    assert scope == load_scope(ROOT / "examples" / "tools" / "scope.toml")


def test_the_oneshot_manifest_of_the_document_loads() -> None:
    (text,) = [each for each in _toml() if 'name = "fetch"' in each]
    tool = parse_tool(text.encode(), "docs/tools.md")
    assert isinstance(tool, Oneshot)
    given = {"url": "https://staging.example.com/"}
    words = ["curl", "-s", "-X", "GET", "-H", "Accept: text/html", given["url"]]
    assert argv(tool, given) == words


def _toml() -> list[str]:
    text = (ROOT / "docs" / "tools.md").read_text()
    return [block.text for block in blocks(text) if block.language == "toml"]
