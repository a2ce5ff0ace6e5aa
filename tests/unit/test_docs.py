"""The documents are consistent, and match the code."""

import re
from pathlib import Path

import pytest

from orchestrator.ground.serving.problems import STATUSES
from orchestrator.settings.settings import Settings
from scripts.docs import DOCS, PARTS, render
from scripts.floors import floors
from tests.support.documents import blocks, documents
from tests.support.server import ROOT

FLOOR_PAGES = sorted((DOCS / "architecture").glob("*.md"))
LANGUAGES = {"sh", "python", "text", "toml", "json", "nginx", "yaml", "dockerfile", "lisp"}
_LINK = re.compile(r"\]\(([^)\s]+)\)")
# Files of ours, named from the root or from the folder that a page names first.
_MODULE = re.compile(r"`([\w./-]+\.py)`")
_TEST = re.compile(r"\[(test_\w+)\]\((\.\./tests/[^)]+)\)")
_FOLDER = re.compile(r"`([\w./-]+/)`")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def _named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _prose(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def _anchors(path: Path) -> set[str]:
    headings = _HEADING.findall(_prose(path.read_text()))
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in kept}


@pytest.mark.parametrize("path", documents(), ids=_named)
def test_generated_parts_are_current(path: Path) -> None:
    text = path.read_text()
    assert render(text) == text, "`make docs` writes them anew"


def test_every_part_is_somewhere() -> None:
    text = "".join(path.read_text() for path in documents())
    assert set(re.findall(r"<!-- generated: (\w+) -->", text)) == PARTS.keys()


@pytest.mark.parametrize("path", documents(), ids=_named)
def test_links_lead_somewhere(path: Path) -> None:
    for link in _LINK.findall(_prose(path.read_text())):
        if link.startswith(("https://", "http://")):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), link
        assert not anchor or anchor in _anchors(target), link


def test_the_index_has_every_document() -> None:
    links = set(_LINK.findall((DOCS / "README.md").read_text()))
    found = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert found - links == {"README.md"}


@pytest.mark.parametrize("path", [DOCS / "architecture.md", *FLOOR_PAGES], ids=_named)
def test_the_architecture_names_files_that_are_there(path: Path) -> None:
    text = path.read_text()
    folder = _FOLDER.search(text)
    assert folder
    for name in _MODULE.findall(text):
        assert (ROOT / name).exists() or (ROOT / folder[1] / name).exists(), name


def test_each_floor_has_a_short_page() -> None:
    assert {floor.name for floor in floors("orchestrator")} <= {path.stem for path in FLOOR_PAGES}
    for path in FLOOR_PAGES:
        assert len(path.read_text().splitlines()) <= 60, path
        assert all(len(line.split()) <= 100 for line in path.read_text().splitlines()), path


def test_each_promise_names_what_enforces_it_and_who_attacks_it() -> None:
    section = (DOCS / "security-model.md").read_text().partition("| promise |")[2]
    table = section.partition("\n\n")[0].splitlines()[2:]
    assert len(table) > 30
    for row in table:
        promise, _, modules, attacks = row.strip("| ").split(" | ")
        enforcing = _LINK.findall(modules)
        assert enforcing, promise
        for link in enforcing:
            assert (DOCS / link).is_file(), f"{promise}: {link}"
            assert not link.startswith("../tests/"), f"{promise}: {link}"
        attacking = _TEST.findall(attacks)
        assert attacking, promise
        for name, link in attacking:
            defined = f"def {name}(" in (DOCS / link).read_text()
            assert defined, f"{promise}: {link} has no {name}"


def test_each_promise_of_a_cluster_names_tests_that_are_there() -> None:
    text = (DOCS / "cluster-proof.md").read_text()
    file, named = "", 0
    for path, name in re.findall(r"`(tests/[\w/]+\.py|…)(?:::(\w+))?`", text):
        file = file if path == "…" else path
        assert f"def {name}(" in (ROOT / file).read_text() if name else (ROOT / file).is_file(), (
            file
        )
        named += 1
    assert named > 30


def test_every_error_code_has_its_entry() -> None:
    text = (DOCS / "troubleshooting.md").read_text()
    for code in STATUSES:
        entry = re.search(rf"^## {code}\n\n(\d+)\. \S", text, re.MULTILINE)
        assert entry, code
        assert int(entry[1]) == STATUSES[code], code


def test_every_setting_is_described() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=_named)
def test_every_block_says_what_it_is(path: Path) -> None:
    for block in blocks(path.read_text()):
        assert block.language in LANGUAGES


def test_contributors_hooks_and_forge_run_commands_that_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for name in ("CONTRIBUTING.md", "README.md", ".ci/run", ".github/workflows/ci.yml"):
        called = re.findall(r"(?:`|^| )make ([a-z-]+)\b", (ROOT / name).read_text(), re.MULTILINE)
        assert set(called) <= targets, name
    lint = re.search(r"^lint:.*\n((?:\t.+\n)+)", makefile, re.MULTILINE)
    assert lint
    commands = lint[1].replace("\t@$(python)", ".venv/bin/python").splitlines()
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    assert re.findall(r"entry: (.+)", hooks) == commands
