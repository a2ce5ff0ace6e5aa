"""Any text and any program ends within its limits, and values survive being written and read."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.programs.turns.lisp.builtins.library import BUILTINS
from orchestrator.programs.turns.lisp.data import bring_in, equal, outward
from orchestrator.programs.turns.lisp.errors import LispError
from orchestrator.programs.turns.lisp.forms import FORMS
from orchestrator.programs.turns.lisp.limits import Allowance, LispLimits
from orchestrator.programs.turns.lisp.printer import written
from orchestrator.programs.turns.lisp.reader import read
from orchestrator.programs.turns.outcome import (
    NEED_TYPES,
    Metadata,
    Outcome,
    Symbol,
    error,
    needs,
    nonconverged,
    ok,
    proposed,
)
from tests.support.lisp import OPERATIONS, SESSION_API, run

LIMITS = {"steps": 2000, "memory_bytes": 200_000, "depth": 200, "output_characters": 500}

numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
symbols = st.text(st.characters(exclude_categories=["Cs"]), max_size=8).map(Symbol)
atoms = (
    st.none()
    | st.booleans()
    | numbers
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    | symbols
    | st.sampled_from(["quote", "unquote", "nil", ".", "1", "@a", "#t", "a|b"]).map(Symbol)
)


def outcomes(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Outcome]:
    texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
    whole = st.integers(-9, 9)
    made = st.one_of(
        st.builds(ok, values),
        st.builds(proposed, values, st.tuples(values)),
        st.builds(nonconverged, values, whole, st.sampled_from(["budget", "max-iterations"])),
        st.builds(Outcome, st.just("cycle"), st.tuples(values, whole, st.tuples(texts))),
        st.builds(needs, st.sampled_from(NEED_TYPES), texts, values),
        st.builds(error, texts, texts, st.tuples(texts)),
    )
    metadata = st.builds(Metadata, tokens=st.none() | whole, signature=st.none() | texts)
    return st.builds(lambda one, more: Outcome(one.tag, one.members, more), made, metadata)


values = st.recursive(
    atoms,
    lambda inner: st.lists(inner, max_size=4).map(tuple) | outcomes(inner),
    max_leaves=12,
)


def finished(generator: Any) -> Any:
    """The value of a generator that only breathes."""
    while True:
        try:
            next(generator)
        except StopIteration as end:
            return end.value


@given(values)
def test_what_is_written_is_read_back(value: Any) -> None:
    allowance = Allowance(LispLimits())
    datum = finished(bring_in(value, allowance))
    forms = finished(read(written(datum, 100_000, allowance), LispLimits()))
    assert forms.length == 1
    assert equal(forms.head, datum, allowance)
    assert outward(forms.head, allowance) == value


@given(values)
def test_json_is_read_back(value: Any) -> None:
    """Except for what JSON has not: symbols become strings, and outcomes are refused."""
    try:
        found = run("(json-stringify (world.read 1))", lambda _: value).value
    except LispError as failed:
        assert "JSON has no outcome" in failed.message or "nested" in failed.message  # noqa: PT017
        return
    again = run("(json-stringify (json-parse (world.read 1)))", lambda _: found).value
    assert isinstance(again, str)
    assert isinstance(found, str)
    assert json.loads(again) == json.loads(found)


words = st.sampled_from(
    [
        *("(", ")", "(", ")", "'", "`", ",", ",@", '"', "|", "#|", ";", "\n", " ", "."),
        *("#t", "nil", "1", "-2.5", "x", "(define (x x)", "(let loop ((i 0))", "(loop", "loop"),
    ]
) | st.sampled_from([*FORMS, *BUILTINS, *OPERATIONS, *SESSION_API])


@given(st.lists(words | st.text(max_size=3), max_size=30).map(" ".join))
def test_any_text_ends(text: str) -> None:
    ends(text)


names = st.sampled_from(["x", "f", "g", "loop", "else", "=>", *BUILTINS, *OPERATIONS])
leaves = st.sampled_from(
    ["x", "f", "nil", "#t", "0", "1", "2", "7", "'()", "'(1 2 3)", '"ab"', "1.5", "(lambda (x) x)"]
)


def calls(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    heads = st.sampled_from([*BUILTINS, *OPERATIONS, *FORMS, "f", "g", "loop"])
    plain = st.builds(lambda head, parts: f"({head} {' '.join(parts)})", heads, st.lists(inner))
    return st.one_of(
        plain,
        plain,
        st.builds("(define (f x) {} {})".format, inner, inner),
        st.builds("(let loop ((x {})) (if {} {} (loop {})))".format, inner, inner, inner, inner),
        st.builds("(let ((g (lambda (x) {}))) (map g {}))".format, inner, inner),
        st.builds("(begin (define g {}) {})".format, inner, inner),
        st.builds("`(a ,{} ,@{})".format, inner, inner),
        st.builds("(eval '{})".format, inner),
        st.builds("(with-budget ((tokens 1)) {})".format, inner),
        st.builds("(f {})".format, inner),
    )


@given(st.recursive(leaves, calls, max_leaves=25))
def test_any_program_ends(text: str) -> None:
    ends(f"(define (f x) (list x x)) (define x 3) {text}")


def ends(text: str) -> None:
    """It ends within its limits, with a value or with a `LispError`; what it asks for is plain."""
    try:
        ran = run(text, limits=LIMITS)
    except LispError as failed:
        assert failed.line >= 1  # noqa: PT017
        assert failed.column >= 1  # noqa: PT017
        assert len(failed.stack) <= 20  # noqa: PT017
        return
    assert ran.program.steps <= LIMITS["steps"] + 1000
    assert len(ran.program.output) <= LIMITS["output_characters"]
    for value in (ran.value, *(request for request in ran.requests)):
        assert_plain(value)
    kept = ran.program.definitions()
    again = run("1", environment=kept.text).program.definitions()
    assert again == (kept.text, ())


def assert_plain(value: Any) -> None:
    if isinstance(value, tuple):
        for each in value:
            assert_plain(each)
    elif isinstance(value, Outcome):
        assert_plain(value.members)
    else:
        assert type(value) in (type(None), bool, int, float, str, Symbol)
