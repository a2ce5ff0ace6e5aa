"""Every built-in function is charged for what it looks at, and lets others run in time."""

import gc
import re
import time
from typing import NamedTuple

import pytest

from orchestrator.programs.turns.lisp.builtins.library import BUILTINS
from orchestrator.programs.turns.lisp.errors import LispError
from orchestrator.programs.turns.lisp.program import LispProgram
from tests.support.lisp import OPERATIONS, run

pytestmark = pytest.mark.slow

# Values of a size: a text has `1 << texts` characters, a list `lists` elements.
GROWN = (
    "(define (grown s n) (if (= n 0) s (grown (string-append s s) (- n 1))))"
    '(define text (grown "a" {texts}))'
)
NUMBERED = "(define numbers (range {lists}))"
VALUES = {
    "wide": '(define wide (grown "\\u{{3a3}}" {texts}))',
    "escaped": '(define escaped (grown "\\u{{e000}}" {texts}))',
    "rows": '(define rows (grown "a\\n" {texts}))',
    "one": '(define one (string->symbol (string-append text "1")))',
    "same": '(define same (string->symbol (string-append text "1")))',
    "other": '(define other (string->symbol (string-append text "2")))',
    "more": "(define more (range {lists}))",
    "texts": "(define texts (map number->string numbers))",
    "dictionary": "(define dictionary (map (lambda (i) (list i i)) numbers))",
    "chosen": "(define chosen (map (lambda (i) (* i 2305843009213693951)) numbers))",
    "lists": "(define lists (map list numbers))",
}


def setup(call: str, sizes: dict[str, int]) -> str:
    """The definitions of what a call uses."""
    used = "".join(value for name, value in VALUES.items() if re.search(rf"\b{name}\b", call))
    return f"{GROWN}{NUMBERED}{used} ".format(**sizes)


SMALL = {"texts": 12, "lists": 1_000}
LARGE = {"texts": 15, "lists": 8_000}
MOST = {"texts": 20, "lists": 40_000}

# What is called with the values above; the result of each is dropped.
CALLS = {
    "eq?": "(eq? one same)",
    "eqv?": "(eqv? one same)",
    "equal?": "(equal? numbers more)",
    "equal? of symbols": "(equal? one same)",
    "append": "(append numbers more)",
    "reverse": "(reverse numbers)",
    "take": "(take (length numbers) numbers)",
    "drop": "(drop (length numbers) numbers)",
    "nth": "(nth (- (length numbers) 1) numbers)",
    "list-ref": "(list-ref numbers (- (length numbers) 1))",
    "last": "(last numbers)",
    "range": "(range (length numbers))",
    "member": "(member -1 numbers)",
    "member of symbols": "(member one (list other other other))",
    "index-of": "(index-of -1 numbers)",
    "assoc": "(assoc -1 dictionary)",
    "assoc of symbols": "(assoc one (list (list other) (list other)))",
    "zip": "(zip numbers more)",
    "unique": "(unique chosen)",
    "unique of texts": "(unique texts)",
    "unique of symbols": "(unique (list one same other))",
    "unique of lists": "(unique (take 300 lists))",
    "sort": "(sort (reverse numbers))",
    "sort of texts": "(sort (list text wide text))",
    "sort by a function": "(sort (take 2000 numbers) >)",
    "get": "(get dictionary -1)",
    "get of symbols": "(get (list (list other 1) (list other 1)) one)",
    "get of strings": '(get (list (list text 1)) (string-append "1" text))',
    "has?": "(has? dictionary -1)",
    "put": "(put dictionary -1 1)",
    "remove-key": "(remove-key dictionary (- (length numbers) 1))",
    "keys": "(keys dictionary)",
    "values": "(values dictionary)",
    "string-append": "(string-append text wide)",
    "substring": "(substring wide 1)",
    "string-split": "(string-split rows)",
    "string-split at a text": '(string-split rows "a")',
    "string-join": '(string-join texts ",")',
    "string-contains?": '(string-contains? text "aaaab")',
    "string-index": '(string-index text (string-append (substring text 5) "b"))',
    "starts-with?": "(starts-with? text (string-append text))",
    "ends-with?": "(ends-with? text (string-append text))",
    "string=?": "(string=? text (substring text 0))",
    "string<?": "(string<? text (substring text 0))",
    "upcase": "(upcase wide)",
    "downcase": "(downcase wide)",
    "trim": "(trim rows)",
    "replace": '(replace rows "a" "b")',
    "lines": "(lines rows)",
    "string->symbol": "(string->symbol text)",
    "symbol->string": "(symbol->string one)",
    "string->number": "(string->number text)",
    "format": '(format (replace rows "a\\n" "~~"))',
    "format of a list": '(format "~s" numbers)',
    "format of escapes": '(format "~s" escaped)',
    "json-parse": '(json-parse (string-append "[" (string-join texts ",") "]"))',
    "json-parse of lists": '(json-parse (string-append "[[" (string-join texts "],[") "]]"))',
    "json-parse of a text": '(json-parse (string-append "\\"" text "\\""))',
    "json-stringify": "(json-stringify dictionary)",
    "json-stringify of a text": "(json-stringify escaped)",
    "map": "(map car dictionary)",
    "for-each": "(for-each car dictionary)",
    "filter": "(filter odd? numbers)",
    "find": "(find (lambda (x) #f) numbers)",
    "any?": "(any? string? numbers)",
    "all?": "(all? number? numbers)",
    "fold": "(fold + 0 numbers)",
    "reduce": "(reduce + numbers)",
    "apply": "(apply + numbers)",
    "fixpoint": "(fixpoint (lambda (x) (reverse x)) numbers 3)",
    "memo": "(memo numbers 1)",
    "eval": "(eval (list 'quote numbers))",
    "case": "(case one ((1) 1) (else 2))",
    "an operation": "(world.read numbers)",
    "an operation with a symbol": "(world.read one)",
}

# Functions that take about the same time for all arguments.
CONSTANT = frozenset(
    {
        *("not", "null?", "empty?", "nil?", "boolean?", "number?", "integer?", "string?"),
        *("symbol?", "list?", "pair?", "procedure?", "outcome?", "newline", "list", "cons"),
        *("car", "first", "cdr", "rest", "second", "third", "cadr", "caddr", "length"),
        *("string-length", "ok", "proposed", "nonconverged", "cycle", "needs"),
        *("outcome-tag", "outcome-value", "outcome-member"),
    }
)
# Functions of numbers are charged for large ones; what prints has 64 Ki characters.
NUMBERS = frozenset(
    {
        *("+", "-", "*", "/", "quotient", "remainder", "modulo", "abs", "min", "max", "round"),
        *("floor", "ceiling", "truncate", "expt", "sqrt", "number->string"),
        *("=", "<", ">", "<=", ">=", "zero?", "positive?", "negative?", "even?", "odd?"),
    }
)
PRINTING = frozenset({"display", "print", "error"})


def steps(text: str) -> int:
    return run(text, limits={"memory_bytes": 1 << 30}).program.steps


def charged(call: str, sizes: dict[str, int]) -> int:
    before = setup(call, sizes)
    return steps(f"{before} (begin {call} 0)") - steps(f"{before} 0")


def test_all_functions_are_examined() -> None:
    examined = {name.partition(" of ")[0] for name in CALLS}
    assert BUILTINS.keys() <= examined | CONSTANT | NUMBERS | PRINTING


@pytest.mark.parametrize("name", sorted(CALLS.keys() - {"unique of lists", "sort by a function"}))
def test_the_steps_grow_with_the_cost(name: str) -> None:
    """Eight times as large is at least four times as dear."""
    small, large = charged(CALLS[name], SMALL), charged(CALLS[name], LARGE)
    assert large >= 4 * max(small - 4, 1)


@pytest.mark.parametrize("name", sorted(NUMBERS))
def test_large_integers_are_charged(name: str) -> None:
    # 2 to this power, in an expression that takes it a thousand times.
    call = {"expt": "(expt -1 e)", "-": "(- 1 e)"}.get(name)
    if call is None:
        needs_one = BUILTINS[name].most == 1
        call = f"({name} e)" if needs_one else f"({name} e 2 2)"
        call = f"({name} e 2)" if BUILTINS[name].most == 2 else call
    program = "(define e (expt 2 {}))" + f"(for-each (lambda (i) (list {call})) (range 500))"
    assert steps(program.format(4000)) - steps(program.format(8)) >= 500


class Slices(NamedTuple):
    """The longest slice of a program, and all, in seconds of CPU."""

    longest: float
    all: float
    steps: int


def slices(text: str) -> Slices:
    """Runs a program, which may fail at a limit. The collector's work is not the program's."""
    program = LispProgram(text, operations=OPERATIONS)
    running = program.run()
    longest = total = 0.0
    gc.collect()
    gc.disable()
    try:
        while True:
            began = time.thread_time()
            try:
                next(running)
            except (StopIteration, LispError):
                return Slices(longest, total, program.steps)
            finally:
                took = time.thread_time() - began
                longest, total = max(longest, took), total + took
    finally:
        gc.enable()


# Generous, because all of a machine's cores may be busy; without a bound it is seconds.
LONGEST = 0.3


@pytest.mark.parametrize("name", sorted(CALLS))
def test_others_run_in_time(name: str) -> None:
    found = slices(f"{setup(CALLS[name], MOST)} (begin {CALLS[name]} 0)")
    assert found.longest < LONGEST
    assert found.all < found.steps * 0.000_050 + LONGEST


def many(call: str, number: int) -> str:
    return f"(for-each (lambda (i) (list {' '.join([call] * 20)})) (range {number}))"


PROGRAMS = {
    "powers": "(define e (- (expt 2 4095) 1))" + many("(expt -1 e)", 2000),
    "roots": "(define e (expt (- (expt 2 2045) 1) 2))" + many("(sqrt e)", 2000),
    "digits": "(define e (expt 2 4095))" + many("(number->string e)", 2000),
    "names": setup("one same", MOST) + many("(eq? one same)", 1000),
    "chosen constants": "(case 0 "
    + " ".join(f"(({number * (2**61 - 1)}) 1)" for number in range(1, 7500))
    + ")",
    "comments": ";\n" * 130_000,
    "comments in comments": "#|" * 65_000 + "|#" * 65_000,
    "escapes": '"' + "\\n" * 130_000 + '"',
    "elements": "'(" + "1 " * 130_000 + ")",
    "forms": "(let () " + "1 " * 127_000 + ")",
    "variables": "(lambda (" + " ".join(f"a{number}" for number in range(30_000)) + ") 1)",
    "large frames": "(define (f) "
    + " ".join(f"(define a{number} 1)" for number in range(9_000))
    + " (f)) (f)",
    "a long name": setup("one same", MOST)
    + "(eval (list 'let (list (list one 1)) (cons '+ (map (lambda (i) same) (range 5000)))))",
    "an error about a long name": setup("escaped", MOST)
    + "(car (string->symbol (string-append escaped escaped)))",
    "a long member": setup("one", MOST) + "(outcome-member (ok 1) one)",
    "large integers": "(range (expt 2 4000) (+ (expt 2 4000) 40000))",
    "numbers of all kinds": "(define x (expt 2 900))"
    "(sort (append (map (lambda (i) (+ x i)) (range 20000))"
    " (map (lambda (i) (* 1.0 (+ x i))) (range 20000))))",
    "signatures": f'(define a \'#outcome(ok 1 (metadata (signature "{"a" * 120_000}b"))))'
    f'(define b \'#outcome(ok 1 (metadata (signature "{"a" * 120_000}c"))))'
    "(member a (map (lambda (_) b) (range 40000)))",
    "digits that leave": "(define e (expt 2 4095)) (map (lambda (_) e) (range 40000))",
    "a stranger's list": '(json-parse (string-append "[" (string-join (map (lambda (i) "[]")'
    ' (range 49000)) ",") "]"))',
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_program_holds_the_others_up(name: str) -> None:
    assert slices(PROGRAMS[name]).longest < LONGEST


def test_numbers_whose_hashes_are_chosen_cost_as_much_as_others() -> None:
    """A table of multiples of 2^61-1 would be a list, because Python's hashes of them are 0."""

    def seconds(factor: int) -> float:
        numbers = f"(define xs (map (lambda (i) (* i {factor})) (range 20000)))"
        return slices(f"{numbers} (unique xs)").all

    assert seconds(2**61 - 1) < 10 * seconds(2**61) + 0.1


def test_equal_values_are_found_by_the_same_key() -> None:
    assert run('(unique (list 0.0 -0.0 0 1 1.0 #t "a" \'a nil "nil"))').value == (
        *(0.0, 0, 1, 1.0, True, "a", "a", None),
        "nil",
    )
    assert run("(case -0.0 ((0) 1) ((0.0) 2) (else 3))").value == 2
    assert run("(case #t ((1) 1) ((#t) 2))").value == 2
    assert run("(case car ((1) 1) (else 2))").value == 2


def test_a_name_has_a_bounded_length_and_a_symbol_has_not() -> None:
    with pytest.raises(LispError, match="a variable has at most 1000 characters"):
        run(f"{'a' * 1001}")
    with pytest.raises(LispError, match="a variable has at most 1000 characters"):
        run(f"(let (({'a' * 1001} 1)) 1)")
    assert run(f"'{'a' * 1001}").value == "a" * 1001


def test_a_function_has_a_bounded_number_of_variables() -> None:
    """Each call makes room for all of them, and ten thousand calls may wait."""
    body = " ".join(f"(define a{number} 1)" for number in range(1001))
    with pytest.raises(LispError, match="at most 1000 variables"):
        run(f"(define (f) {body} 1)")
