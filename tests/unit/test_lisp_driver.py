"""What a program asks of its driver, what the driver may throw, and what programs leave behind."""

import pytest

from orchestrator.programs.turns.lisp.errors import LispError
from orchestrator.programs.turns.lisp.program import LispProgram
from orchestrator.programs.turns.outcome import Outcome, Value, nonconverged, ok
from orchestrator.programs.turns.programs import (
    Breath,
    Enter,
    Leave,
    Operation,
    OperationFailed,
    PolicyViolation,
    Request,
    ScopeExceeded,
)
from tests.support.lisp import returning, run, value

# Every kind of request, and every way to come to one.
EVERYTHING = """
(define (ask x) (+ 0 (begin (world.read x) 1)))
(with-budget ((tokens 5))
  (map world.read '("a"))
  (with-budget ((iterations 2))
    (memo "k" (ask "b"))
    (subeval "(world.read \\"c\\")" ((deny world.write)))))
(eval '(world.read "d"))
(fixpoint (lambda (x) (sort '(2 1) (lambda (a b) (ask "e") (< a b)))) 1 5)
(assert "done")
"""


def named(request: Request) -> str:
    if isinstance(request, Operation):
        return request.name
    return request.kind if isinstance(request, Enter) else "leave"


def test_requests_in_order() -> None:
    requests = run(EVERYTHING).requests
    names = [named(each) for each in requests]
    assert names == [
        *("with-budget", "world.read", "with-budget", "memo", "world.read", "memo", "subeval"),
        *("world.read", "leave", "leave", "leave", "eval", "world.read", "fixpoint"),
        *("world.read", "world.read", "assert"),
    ]
    assert requests[0] == Enter("with-budget", (("tokens", 5),))
    assert requests[6] == Enter("subeval", (("deny", "world.write"),))
    assert requests[1] == Operation("world.read", ("a",))


def test_operations_and_the_session_api_are_functions() -> None:
    ran = run("(list (session/id) (apply session/budget-remaining '(tokens)) (facts))", str)
    assert [named(each) for each in ran.requests] == [
        *("session/id", "session/budget-remaining", "facts")
    ]
    assert ran.requests[1] == Operation("session/budget-remaining", ("tokens",))


@pytest.mark.parametrize("number", range(17))
def test_an_error_at_each_request(number: int) -> None:
    """The driver throws each error instead of each answer; the program ends as it is to end."""

    def thrown(error: Exception) -> Value:
        program = LispProgram(EVERYTHING, operations={"world.read", "assert"})
        running = program.run()
        asked = 0
        try:
            request = next(running)
            while True:
                if isinstance(request, Breath):
                    request = running.send(None)
                elif asked == number:
                    asked += 1
                    request = running.throw(error)
                else:
                    asked += 1
                    request = running.send(None)
        except StopIteration as end:
            found: Value = end.value
            return found

    with pytest.raises(LispError, match="no luck") as raised:
        thrown(OperationFailed("no luck"))
    assert raised.value.stack
    with pytest.raises(PolicyViolation, match="refused"):
        thrown(PolicyViolation("refused"))
    with pytest.raises(KeyError):
        thrown(KeyError("anything else"))
    scopes = [1, 1, 2, 2, 2, 2, 3, 3, 3, 2, 1, 0, 0, 0, 0, 0, 0][number]
    with pytest.raises(ScopeExceeded):
        thrown(ScopeExceeded(scopes + 1, "tokens"))
    for scope in range(1, scopes + 1):
        assert thrown(ScopeExceeded(scope, "tokens")) is None


def test_a_scope_that_is_used_up_is_left_without_saying_so() -> None:
    text = """
    (list (with-budget ((tokens 1))
            (list (with-budget ((tokens 2)) (map world.read '("a" "b" "c"))) 2))
          (world.read "d"))
    """
    inner = run(text, errors=[ScopeExceeded(2, "tokens")], answered=3)
    assert inner.value == ((nonconverged(None, 2, "budget"), 2), "text of d")
    assert [type(each) for each in inner.requests] == [
        *(Enter, Enter, Operation, Operation, Leave, Operation)
    ]
    outer = run(text, errors=[ScopeExceeded(1, "tokens")], answered=3)
    assert outer.value == (nonconverged(None, 2, "budget"), "text of d")
    assert [type(each) for each in outer.requests] == [
        *(Enter, Enter, Operation, Operation, Operation)
    ]


def test_a_budget_may_end_between_operations() -> None:
    program = LispProgram("(with-budget ((time 1)) (let loop () (loop)))", operations=frozenset())
    running = program.run()
    assert next(running) == Enter("with-budget", (("time", 1),))
    assert running.send(None) == Breath()
    with pytest.raises(StopIteration) as end:
        running.throw(ScopeExceeded(1, "time"))
    assert end.value.value == nonconverged(None, 0, "budget")


def test_memo() -> None:
    known: dict[Value, Value] = {}

    def answer(operation: Operation) -> Value:
        if operation.name != "memo":
            return "read"
        if len(operation.args) == 2:
            known[operation.args[0]] = operation.args[1]
            return None
        return (known[operation.args[0]],) if operation.args[0] in known else None

    text = "(list (memo 'a (world.read 1)) (memo 'a (world.read 1)) (memo 'b (world.read 1)))"
    ran = run(text, answer)
    assert ran.value == ("read", "read", "read")
    assert sum(named(each) == "world.read" for each in ran.requests) == 2
    (first, second) = known
    assert len(str(first)) == 64
    assert first != second


def test_answers_are_values() -> None:
    given = (1, 2.5, "a", None, True, ("b", ()), ok((1,)))
    assert value("(world.read 1)", lambda _: given) == given
    assert value("(outcome-value (nth 6 (world.read 1)))", lambda _: given) == (1,)
    for wrong in ({"a": 1}, [1], float("nan"), 1 << 5000, object()):
        with pytest.raises(LispError):
            value("(world.read 1)", returning(wrong))


def test_outcomes_are_values() -> None:
    found = value("(needs 'needs-evidence \"the log\" '(1))")
    assert isinstance(found, Outcome)
    assert found.json()["context"] == [1]


def test_definitions_are_kept() -> None:
    first = run(
        """
        (define x '(1 "a" b))
        (define (double n) (* 2 n))
        (define (quad n) (double (double n)))
        (define read world.read)
        (define done (ok 1))
        (define counter (let ((n 0)) (lambda () n)))
        (define functions (list car))
        (set! x 5)
        """
    ).program.definitions()
    assert first.dropped == ("counter", "functions")
    text = '(list x (quad 3) (read "f") (outcome-value done))'
    second = run(text, environment=first.text)
    assert second.value == (5, 12, "text of f", 1)
    assert second.program.definitions() == (first.text, ())


def test_definitions_of_a_program_that_fails_are_kept() -> None:
    program = LispProgram("(define x 1) (car x)", operations=frozenset())
    with pytest.raises(LispError):
        list(program.run())
    assert program.definitions().text == "(define x '1)\n"


def test_what_does_not_fit_is_dropped() -> None:
    text = (
        '(define a 1) (define b (apply string-append (map (lambda (x) "0123456789") (range 99))))'
    )
    found = run(text + "(define c 2)", limits={"stored_characters": 500}).program.definitions()
    assert found == ("(define a '1)\n(define c '2)\n", ("b",))
    deep = "(define (nest n x) (if (= n 0) x (nest (- n 1) (list x)))) (define x (nest 5000 1))"
    assert run(deep).program.definitions().dropped == ("x",)


@pytest.mark.parametrize("text", ["(", "(foo)", "(define x (car y))", "(define x 5)", "5"])
def test_other_texts_are_no_definitions(text: str) -> None:
    with pytest.raises(LispError):
        run("1", environment=text)


def test_operations_that_are_gone_are_left_out() -> None:
    text = "(define a gone)\n(define car '1)\n(define b '2)\n"
    assert run("(list b (car '(3)))", environment=text).value == (2, 3)
