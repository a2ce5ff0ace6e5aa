"""Mistakes, limits and places: what is wrong is said, with line, column and calls."""

import pytest

from orchestrator.programs.turns.lisp.errors import Called, LispError
from tests.support.lisp import OPERATIONS, run, value

DEEP = "(define (deep n) (if (= n 0) 0 (+ 1 (deep (- n 1)))))"


def failure(text: str, **limits: int) -> LispError:
    with pytest.raises(LispError) as raised:
        run(text, limits=limits)
    return raised.value


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        # Reading
        ("(a . b)", (1, 4), "dotted pairs are not supported"),
        ("(+ 1\n  (foo", (2, 3), "ends without ) of this ("),
        ("(+ 1 2))", (1, 8), "closes nothing"),
        ("1 '", (1, 3), "ends without a form after this '"),
        ("(list ')", (1, 7), "a form is missing after '"),
        ('1 "abc', (1, 3), "the string does not end"),
        ("|abc", (1, 1), "the symbol between bars does not end"),
        ("#| a #| b |#", (1, 1), "the comment does not end"),
        (r'"\q"', (1, 1), "is not an escape"),
        (r'"\u{d800}"', (1, 1), "is no character"),
        ("(list 1x)", (1, 7), "1x is neither a number nor a name"),
        ("1.2.3", (1, 1), "neither a number nor a name"),
        ("1e999", (1, 1), "must be finite"),
        ("#<function>", (1, 1), "is nothing"),
        ("#outcome(fine 1)", (1, 16), "an outcome is one of ok"),
        ("#outcome(nonconverged 1 a budget)", (1, 33), "iterations must be an integer"),
        ("a\n  \ud800", (2, 3), "this is no character"),
        ("9" * 1400, (1, 1), "at most 4096 bits"),
        ("'" * 600, (1, 501), "nested more than 500 deep"),
        # Compiling, before anything is done
        ("(world.read 1) (if)", (1, 16), "if is (if test then [else])"),
        ("(define car 1)", (1, 1), "car is built in"),
        ("(define world.read 1)", (1, 1), "world.read is built in"),
        ("(let ((if 1)) if)", (1, 8), "if is a form"),
        ("(list if)", (1, 7), "if is a form and no value"),
        ("(define 5 1)", (1, 9), "a variable is a symbol, and not 5"),
        ("(define x 1 2)", (1, 1), "define is (define name value)"),
        ("(define (f))", (1, 1), "define is (define name value)"),
        ("(lambda (x x) x)", (1, 10), "two parameters have the same name"),
        ("(lambda (&rest) x)", (1, 10), "after &rest comes one parameter"),
        ("(lambda 5 x)", (1, 1), "parameters are a list of symbols"),
        ("(let ((x)) x)", (1, 7), "the variables of let are ((name value) …), and not (x)"),
        ("(let ((x 1) (x 2)) x)", (1, 1), "two variables have the same name"),
        ("(lambda (x) (if x (define y 1)))", (1, 19), "define belongs to its body"),
        ("(cond (else 1) (2 3))", (1, 7), "else is the last clause"),
        ("(cond 5)", (1, 7), "a clause of cond is"),
        ("(cond (1 => car cdr))", (1, 7), "a clause with => is"),
        ("(case 1 (1 2))", (1, 9), "a clause of case is"),
        ("(case 1 (((1)) 2))", (1, 9), "a constant of case is no list"),
        ("(do (x) (#t))", (1, 1), "a variable of do is"),
        (",x", (1, 1), "unquote belongs into a quasiquote"),
        ("`,@x", (1, 1), ",@ belongs into a list"),
        ("(with-budget (5) 1)", (1, 15), "the limits of with-budget are"),
        # Running
        ("\n (foo 1)", (2, 3), "foo is not defined"),
        ("(set! foo 1)", (1, 1), "foo is not defined"),
        ("(5 1)", (1, 1), "a call needs a function, not an integer: 5"),
        ("((lambda (x) x))", (1, 1), "lambda needs 1 arguments, and was given 0"),
        ("(define (f a &rest b) a) (f)", (1, 26), "f needs at least 1 arguments"),
        ("(car)", (1, 1), "car is (car list); it was given 0 arguments"),
        (
            "(apply +)",
            (1, 1),
            "apply is (apply function value value ...); it was given 1 argument",
        ),
        ("(+ 1\n (car '()))", (2, 2), "car of an empty list"),
        ("(+ 1 'a)", (1, 1), "+ needs a number, not a symbol: a"),
        ("(+ #t 1)", (1, 1), "+ needs a number, not a boolean"),
        ("(cons 1 2)", (1, 1), "cons needs a list, not an integer"),
        ("(letrec ((a b) (b 1)) a)", (1, 13), "b is used before it is defined"),
        ("(define (f) (set! x 1) (define x 2)) (f)", (1, 13), "x is set before it is defined"),
        ("(/ 1 0)", (1, 1), "divided by zero"),
        ("(modulo 1 0)", (1, 1), "divided by zero"),
        ("(* 1e300 1e300)", (1, 1), "must be finite"),
        ("(+ (expt 10 400) 1.5)", (1, 1), "too large for a decimal"),
        ("(expt 2 5000)", (1, 1), "at most 4096 bits"),
        ("(expt 10 (expt 10 100))", (1, 1), "at most 4096 bits"),
        ("(sqrt -1)", (1, 1), "no square root"),
        ("(nth 3 '(1))", (1, 1), "3 is none of them"),
        ("(take -1 '(1))", (1, 1), "can't be negative"),
        ("(range 1 2 0)", (1, 1), "the step can't be 0"),
        ("(range (expt 10 30))", (1, 1), "a list has at most 50000 elements"),
        ('(sort \'(1 "a"))', (1, 1), "sort needs only numbers"),
        ("(reduce + '())", (1, 1), "needs a first value"),
        ('(substring "abc" 2 1)', (1, 1), "the string has 3 characters"),
        ('(string-split "a" "")', (1, 1), "the separator is empty"),
        ('(replace "a" "" "b")', (1, 1), "to be replaced is empty"),
        ("(string-join '(1))", (1, 1), "string-join needs a list of strings"),
        ('(format "~a")', (1, 1), "too few values"),
        ('(format "a" 1)', (1, 1), "1 more values"),
        ('(format "~x" 1)', (1, 1), "and not ~x"),
        ("(get '(1) 'a)", (1, 1), "entries like (name value)"),
        ('(json-parse "[1,]")', (1, 1), "wrong at ']' (its line 1, column 4)"),
        ('(json-parse "{\\"a\\": 1")', (1, 1), "ends too early"),
        ('(json-parse "")', (1, 1), "ends too early"),
        ('(json-parse "1 2")', (1, 1), "is wrong at '2'"),
        ('(json-parse "NaN")', (1, 1), "is wrong"),
        ("(json-stringify car)", (1, 1), "JSON has no function"),
        ('(needs \'help "x")', (1, 1), "need_type must be one of needs-evidence"),
        ("(outcome-member (ok 1) 'reason)", (1, 1), "has value, and no reason"),
        ("(with-budget ((tokens -1)) 1)", (1, 1), "a number of tokens from 0 on"),
        ("(subeval 1 5)", (1, 1), "a list of options"),
        ("(subeval 1 '(5))", (1, 1), "options like (allow world.read)"),
        ('(subeval "(foo")', (1, 1), "ends without )"),
        ("(world.read car)", (1, 1), "a function is not a value that operations take"),
        ("(memo car 1)", (1, 1), "the function car can't be written"),
        ("(list car)", (1, 1), "a function is not a value"),
        ("(eval '(car 5))", (1, 9), "car needs a list"),
        ('(error "bad:" \'(1 "x"))', (1, 1), 'bad: (1 "x")'),
    ],
)
def test_places_and_messages(text: str, place: tuple[int, int], message: str) -> None:
    error = failure(text)
    assert message in error.message
    assert (error.line, error.column) == place
    assert str(error) == f"{error.message} (line {error.line}, column {error.column})"


def test_the_calls_are_named() -> None:
    error = failure("(define (f x) (+ 1 (g x)))\n(define (g x)\n  (* 2 (car x)))\n(list (f 5))")
    assert error.stack == (
        Called("g", 3, 8),
        Called("f", 1, 15),
        Called("program", 4, 1),
    )


def test_at_most_twenty_calls_are_named() -> None:
    functions = [f"(define (f{n} x) (+ 1 (f{n + 1} x)))" for n in range(40)]
    error = failure("\n".join(functions) + "(define (f40 x) (car x)) (f0 1)")
    assert len(error.stack) == 20


def test_nothing_is_done_before_a_mistake_of_form_is_found() -> None:
    with pytest.raises(LispError):
        run('(world.read "a") (let)', lambda _operation: pytest.fail("it was done"))


@pytest.mark.parametrize(
    ("text", "limits", "message"),
    [
        ("(define (f) (f)) (f)", {"steps": 5000}, "needs more than 5000 steps"),
        ("(let loop () (map car '((1))) (loop))", {"steps": 5000}, "more than 5000 steps"),
        (f"{DEEP} (deep 20000)", {}, "more than 10000 calls wait"),
        ("(define (f x) (map f (list x))) (f 1)", {}, "more than 10000 calls wait"),
        ('(define (g s) (g (string-append s s))) (g "a")', {}, "at most 4194304 characters"),
        ('(define (g s) (g (string-append s "é" s))) (g "a")', {}, "at most 4194304"),
        ("(define (g s) (g (append s s))) (g '(1))", {}, "at most 50000 elements"),
        ("(define (g s) (g (cons s s))) (g '())", {"list_length": 99}, "at most 99 elements"),
        ("(define (g s) (g (list s s))) (g 1)", {"memory_bytes": 9999}, "9999 bytes of memory"),
        ("(define (g n) (g (* n n))) (g 3)", {}, "at most 4096 bits"),
        ("(define (g n) (g (- n))) (g (expt 2 4000))", {}, "bytes of memory"),
        ("(define (g f) (g (lambda () f))) (g 1)", {"memory_bytes": 9999}, "9999 bytes"),
        ('(let loop () (print "abc") (loop))', {}, "prints more than 65536 characters"),
        ("(define (g x) (g (list x x))) (display (g 1))", {"steps": 900}, "900 steps"),
        ("1 2 3 4 5", {"program_characters": 5}, "at most 5 characters"),
        ("(((1)))", {"nesting": 2}, "nested more than 2 deep"),
        ("(let* (" + "(x 1)" * 3000 + ") x)", {}, "nested more than 1000 deep"),
    ],
)
def test_limits(text: str, limits: dict[str, int], message: str) -> None:
    assert message in failure(text, **limits).message


# Shared parts make values that are small in memory and enormous as a tree.
SHARED = "(define (grow n x) (if (= n 0) x (grow (- n 1) (list x x)))) (define x (grow 60 1))"


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("(equal? x (grow 60 1))", "too much for one call"),
        ("(display x)", "characters as text"),
        ('(format "~s" x)', "more than 200000 steps"),
        ("(world.read x)", "more than 100000 elements"),
        ("x", "more than 100000 elements"),
        ("(json-stringify x)", "more than 200000 steps"),
        ("(memo x 1)", "more than 200000 steps"),
        ("(eval x)", "more than 100000 elements"),
        ("(unique (list x (grow 60 1)))", "too much for one call"),
        ("(member x (list (grow 60 1)))", "too much for one call"),
    ],
)
def test_values_with_shared_parts_are_no_trap(program: str, message: str) -> None:
    assert message in failure(f"{SHARED} {program}", steps=200_000).message


NESTED = "(define (nest n x) (if (= n 0) x (nest (- n 1) (list x)))) (define x (nest 20000 1))"


@pytest.mark.parametrize(
    "program",
    ["(world.read x)", "x", "(json-stringify x)", "(eval x)", "(fixpoint nest x 1)"],
)
def test_deep_values_do_not_leave(program: str) -> None:
    assert failure(f"{NESTED} {program}").message


def test_deep_values_are_no_trap() -> None:
    assert value(f'{NESTED} (list (equal? x (nest 20000 1)) (string-length (format "~s" x)))') == (
        True,
        40_001,
    )


def test_deep_code_is_compiled_and_evaluated_without_recursion() -> None:
    assert value("(+ 1 " * 480 + "0" + ")" * 480) == 480
    assert value("(if #t " * 480 + "0" + ")" * 480) == 0
    assert value("(let ((x 1)) " * 480 + "x" + ")" * 480) == 1
    assert value("(cond " + "(#f 1)" * 5_000 + "(else 2))") == 2
    assert value("(or " + "#f " * 5_000 + "2)") == 2
    assert "nested" in failure(f"{NESTED} (subeval x)").message


def test_tail_calls_need_no_space() -> None:
    text = """
    (define (a n) (cond ((= n 0) 'done) (else (begin (b n)))))
    (define (b n) (when #t (let ((m n)) (c m))))
    (define (c n) (case n ((-1) 1) (else (and #t (or #f (apply a (list (- n 1))))))))
    (a 3000)
    """
    ran = run(text, limits={"depth": 20})
    assert ran.value == "done"


def test_a_loop_needs_no_memory() -> None:
    ran = run("(let loop ((i 0)) (if (< i 100000) (loop (+ i 1)) i))", limits={"depth": 5})
    assert ran.value == 100_000
    assert ran.program.memory < 1000
    assert ran.breaths >= ran.program.steps // 2000


def test_others_run_while_something_large_is_made() -> None:
    text = "(define x (range 40000)) " + "(reverse x)" * 6
    ran = run(text)
    assert ran.program.steps < 1_000_000
    assert ran.breaths >= 6


def test_a_long_text_is_read_in_parts() -> None:
    assert run("(list " + "(+ 1 2) " * 2_000 + ") 1").breaths > 10


def test_steps_are_counted() -> None:
    assert run("1").program.steps < 5
    short, long = (
        run(f"(let loop ((i 0)) (if (< i {n}) (loop (+ i 1))))").program.steps for n in (10, 1010)
    )
    assert long - short == 2000


def test_names_of_python_are_only_names() -> None:
    for name in ("__import__", "open", "eval.__globals__", "car.__class__", "os", "self"):
        assert "not defined" in failure(f"({name} 1)").message
        assert value(f"'{name}") == name
    assert "world.read" in OPERATIONS
