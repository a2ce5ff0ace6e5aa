"""Marks for what a test attempts; the table in docs/security.md is generated from them.

The generator reads the tests' source, so all arguments must be literals.
"""

import pytest

EVERYWHERE = "low medium high"


def attempt(text: str, *, layer: str, levels: str = EVERYWHERE) -> pytest.MarkDecorator:
    """The test attempts `text` at each of the `levels`, where `layer` stops it.

    A test with an argument `level` runs once at each of them.
    """
    return pytest.mark.attempt(text, layer=layer, levels=levels)


def attempts(
    texts: dict[str, str], *, layer: str, levels: str = EVERYWHERE
) -> pytest.MarkDecorator:
    """Like `attempt`, for a test with arguments `level` and `name`, with one row per name.

    `texts` maps the names under which the attack program reports its attempts to their
    descriptions.
    """
    return pytest.mark.attempts(texts, layer=layer, levels=levels)


def spellings(
    names: tuple[str, ...], *, text: str, layer: str, levels: str = EVERYWHERE
) -> pytest.MarkDecorator:
    """Like `attempts`, for one attempt in many spellings, which share a row."""
    return pytest.mark.attempts(names, layer=layer, levels=levels, text=text)


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Parametrizes a marked test by the levels and names of its marks."""
    many = list(metafunc.definition.iter_markers("attempts"))
    marks = [*metafunc.definition.iter_markers("attempt"), *many]
    levels = {level: None for mark in marks for level in mark.kwargs["levels"].split()}
    if many:
        metafunc.parametrize("name", [name for mark in many for name in mark.args[0]])
    if marks and "level" in metafunc.fixturenames:
        metafunc.parametrize("level", list(levels), scope="module")
