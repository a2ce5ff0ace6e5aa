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


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Runs a marked test at the levels, and for the names, that its marks have."""
    marks = [*metafunc.definition.iter_markers("attempt")]
    marks += metafunc.definition.iter_markers("attempts")
    levels = {level: None for mark in marks for level in mark.kwargs["levels"].split()}
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", [name for mark in marks for name in mark.args[0]])
    if "level" in metafunc.fixturenames:
        metafunc.parametrize("level", list(levels), scope="module")
