"""The comparison with other systems names proofs and pages that are there."""

import re
from collections.abc import Iterator

import pytest

from scripts.docs import DOCS

_TEXT = (DOCS / "compare.md").read_text()
_TEST = re.compile(r"\[(test_\w+)\]\((\.\./tests/[^)#]+)\)")
_LOCAL = re.compile(r"\]\((?!https?://)([^)\s#]+)")
_NAMED = re.compile(r"\[[^\]]+\]\[([\w-]+)\]")
_ADDRESS = re.compile(r"^\[([\w-]+)\]: https://\S+$", re.MULTILINE)
_COLUMNS = ["feature", "E2B", "Daytona", "OpenSandbox", "Paddock"]


def _rows() -> Iterator[list[str]]:
    for line in _TEXT.splitlines():
        if line.startswith("| ") and not line.startswith("| feature |"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


ROWS = list(_rows())


def _feature(row: list[str]) -> str:
    return row[0]


def test_every_table_has_the_same_columns() -> None:
    heads = re.findall(r"^\| feature .*$", _TEXT, re.MULTILINE)
    assert heads == ["| " + " | ".join(_COLUMNS) + " |"] * len(heads)
    assert len(heads) == len(re.findall(r"^\|---", _TEXT, re.MULTILINE))
    assert len(ROWS) > 30
    assert {len(row) for row in ROWS} == {len(_COLUMNS)}


@pytest.mark.parametrize("row", ROWS, ids=_feature)
def test_each_claim_of_ours_names_a_test(row: list[str]) -> None:
    tests = _TEST.findall(row[-1])
    assert tests or re.match(r"\[?no\b", row[-1]), "without a test, it's a no"
    assert row[-1].count("[test_") == len(tests), "a test is linked where it is"
    for name, link in tests:
        text = (DOCS / link).read_text()
        assert re.search(rf"^(?:async )?def {name}\(", text, re.MULTILINE), f"{link} has no {name}"


@pytest.mark.parametrize("row", ROWS, ids=_feature)
def test_each_claim_of_others_names_a_page_that_was_read(row: list[str]) -> None:
    read = set(_NAMED.findall(_TEXT.partition("## Pages that were read")[2]))
    for system, cell in zip(_COLUMNS[1:-1], row[1:-1], strict=True):
        pages = _NAMED.findall(cell)
        assert pages or cell == "not said", f"{system}: {cell}"
        assert set(pages) <= read, f"{system}: {cell}"


def test_each_page_has_an_address_and_is_named() -> None:
    addresses = _ADDRESS.findall(_TEXT)
    tables, _, read = _TEXT.partition("## Pages that were read")
    assert len(addresses) == len(set(addresses))
    assert set(_NAMED.findall(tables)) == set(_NAMED.findall(read)) == set(addresses)


def test_each_document_that_it_links_is_there() -> None:
    for link in _LOCAL.findall(_TEXT):
        assert (DOCS / link).exists(), link
