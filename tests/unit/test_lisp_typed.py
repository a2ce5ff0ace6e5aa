"""Forms that are typed end where the server's reader ends them."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.programs.turns.lisp.data import chain, equal
from orchestrator.programs.turns.lisp.errors import LispError
from orchestrator.programs.turns.lisp.limits import Allowance, LispLimits
from orchestrator.programs.turns.lisp.reader import read
from paddock.cli.prompt.lisp_names import NAMES
from paddock.cli.prompt.lisp_text import TypedForms
from scripts.docs import LISP_NAMES, lisp_names

_PIECES = (
    *("(", ")", "'", "`", ",", ",@", '"', "|", "\\", ";", "#|", "|#", "#outcome(", "\n", " "),
    *("a", "1", "#t", '"a\\"b"', "|x y|", "; no (\n", "#| ( |#"),
)
texts = st.lists(st.sampled_from(_PIECES) | st.text(max_size=3), max_size=30).map("".join)


def forms_of(text: str) -> list[Any]:
    """The forms that the server reads. Raises: LispError."""
    reading = read(text, LispLimits())
    while True:
        try:
            next(reading)
        except StopIteration as end:
            return list(end.value)


def typed(text: str) -> tuple[list[str], bool]:
    """The forms of a text that is typed line by line, and whether one is unfinished."""
    forms = TypedForms()
    found = [form for line in text.split("\n") for form in forms.feed(line)]
    return found, forms.unfinished


@given(texts)
@example('\'a `(b ,@c) #| ( #| ) |# ( |# "(\n\\"" |(|')
@example("#outcome(ok 1)")
def test_forms_end_where_the_reader_ends_them(text: str) -> None:
    found, unfinished = typed(text)
    try:
        expected = forms_of(text)
    except LispError as error:
        if "does not end" in error.message or "text ends without" in error.message:
            assert unfinished
        return
    assert not unfinished
    again = [form for text in found for form in forms_of(text)]
    assert len(found) == len(again) == len(expected)
    allowance = Allowance(LispLimits())
    assert equal(chain(again), chain(expected), allowance)


def test_a_wrong_parenthesis_is_sent_and_forgotten() -> None:
    assert typed(") (a)\n(b") == ([")", "(a)"], True)


def test_the_names_are_those_of_the_language() -> None:
    assert LISP_NAMES.read_text() == lisp_names(), "run `make docs`"
    assert {"world.read", "let", "string-length", "session/id"} <= set(NAMES)
