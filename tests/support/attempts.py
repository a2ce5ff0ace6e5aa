"""Marks that say what a test tries: docs/security.md has its table from them.

The document is made from the tests' source: all arguments are literals.
"""

import pytest

EVERYWHERE = "low medium high"


def attempt(text: str, *, layer: str, levels: str = EVERYWHERE) -> pytest.MarkDecorator:
    """The test tries `text` at each of the `levels`, where `layer` stops it.

    A test with an argument `level` runs once at each of them.
    """
    return pytest.mark.attempt(text, layer=layer, levels=levels)


def attempts(
    texts: dict[str, str], *, layer: str, levels: str = EVERYWHERE
) -> pytest.MarkDecorator:
    """As `attempt`, for a test with arguments `level` and `name`, which has one row for each name.

    `texts` are the attempts by the names that the attack program reports them under.
    """
    return pytest.mark.attempts(texts, layer=layer, levels=levels)


def spellings(
    names: tuple[str, ...], *, text: str, layer: str, levels: str = EVERYWHERE
) -> pytest.MarkDecorator:
    """As `attempts`, for one attempt in many spellings, which share a row."""
    return pytest.mark.attempts(names, layer=layer, levels=levels, text=text)


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Runs a marked test at the levels, and for the names, that its marks have."""
    many = list(metafunc.definition.iter_markers("attempts"))
    marks = [*metafunc.definition.iter_markers("attempt"), *many]
    levels = {level: None for mark in marks for level in mark.kwargs["levels"].split()}
    if many:
        metafunc.parametrize("name", [name for mark in many for name in mark.args[0]])
    if marks and "level" in metafunc.fixturenames:
        metafunc.parametrize("level", list(levels), scope="module")
