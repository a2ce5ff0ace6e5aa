"""Evaluates compiled programs with a stack of its own, in slices of steps."""

from collections.abc import Generator
from typing import Any, NamedTuple

from typing_extensions import override

from orchestrator.programs.turns.lisp.builtins.primitive import Applied, Control, Primitive, wrong
from orchestrator.programs.turns.lisp.data import (
    Datum,
    DriverFunction,
    Frame,
    Function,
    bring_in,
    take_out,
)
from orchestrator.programs.turns.lisp.errors import Called, LispError, Problem
from orchestrator.programs.turns.lisp.expressions import ASK, NEXT, NOTHING, Expression, Registers
from orchestrator.programs.turns.lisp.limits import BURST, Allowance
from orchestrator.programs.turns.outcome import Value, nonconverged
from orchestrator.programs.turns.programs import (
    Breath,
    Enter,
    Leave,
    Operation,
    OperationFailed,
    Request,
    ScopeExceeded,
)

# Others may run after so many steps.
_SLICE = 1000
_MOST_CALLS = 20


class Evaluate(NamedTuple):
    """The value of an expression, which a guided form asks the machine for."""

    expression: Expression
    frame: Frame


class Scoped(NamedTuple):
    """The value of an expression in a nested scope, which a guided form asks the machine for."""

    request: Enter
    expression: Expression
    frame: Frame


class Machine(Registers):
    """The state of one program that is evaluated."""

    def __init__(self, allowance: Allowance) -> None:
        super().__init__(allowance)
        self._request: Request = Breath()
        self._asking: Expression = NOTHING
        self._scopes: list[_Scope] = []
        self._operations = 0

    def run(self, expression: Expression) -> Generator[Request, Value, Datum]:
        """Evaluates an expression. Raises: LispError; what the driver throws."""
        self.node, self.frame = node, _ = expression, None
        value = NEXT
        stack = self.stack
        allowance = self.allowance
        try:
            while True:
                for count in range(1, self._slice() + 1):
                    if value is NEXT:
                        node = self.node
                        value = node.enter(self, self.frame)
                    elif value is ASK:
                        node = self._asking
                        value = yield from self._answered()
                    elif stack:
                        node, frame, state = stack.pop()
                        value = node.resume(self, frame, state, value)
                    else:
                        allowance.steps += count
                        return value
                    if allowance.burst > BURST:
                        break
                allowance.spend(count)
                value = yield from self._breath(value)
        except Problem as problem:
            raise self._failure(problem, node) from None

    def _slice(self) -> int:
        left = self.allowance.limits.steps - self.allowance.steps
        # One step more than is left shows that it is not enough.
        return min(_SLICE, left + 1)

    def _breath(self, value: Datum) -> Generator[Request, Value, Datum]:
        self.allowance.burst = 0
        try:
            yield Breath()
        except ScopeExceeded as exceeded:
            return self._unwound(exceeded)
        return value

    def _answered(self) -> Generator[Request, Value, Datum]:
        request = self._request
        try:
            if isinstance(request, Operation | Enter):
                given: list[Value] = []
                for each in request.args:
                    given.append((yield from take_out(each, self.allowance)))
                request = request._replace(args=tuple(given))
            self.allowance.burst = 0
            answer = yield request
            if type(request) is not Operation:
                return None
            return (yield from bring_in(answer, self.allowance))
        except OperationFailed as failed:
            raise Problem(str(failed) or "the operation failed") from None
        except ScopeExceeded as exceeded:
            return self._unwound(exceeded)

    def _failure(self, problem: Problem, node: Expression) -> LispError:
        place = problem.place or node.place
        calls = [Called(node.owner, *place)]
        for waiting, _, _ in reversed(self.stack):
            called = Called(waiting.owner, *waiting.place)
            if called != calls[-1]:
                calls.append(called)
            if len(calls) == _MOST_CALLS:
                break
        return LispError(problem.message, *place, tuple(calls))

    @override
    def apply(self, function: Datum, arguments: list[Datum], node: Expression) -> Datum:
        if len(self.stack) > self.depth:
            raise self.too_deep()
        if type(function) is Function:
            self.frame = function.code.frame(function, arguments, self)
            self.node = function.code.body
            return NEXT
        if type(function) is Primitive:
            return function.call(self.allowance, arguments)
        if type(function) is Control:
            steps = function.begin(self.allowance, arguments)
            return self.drive(steps, None, Driven(node.place, node.owner))
        if type(function) is DriverFunction:
            return self.ask(Operation(function.name, tuple(arguments)), node)
        raise wrong("a call", "a function", function)

    def ask(self, request: Request, node: Expression) -> Datum:
        """Asks the driver, with arguments that are still the program's."""
        if type(request) is Operation:
            self._operations += 1
        self._request = request
        self._asking = node
        return ASK

    @override
    def drive(self, steps: Any, value: Datum, node: Expression) -> Datum:
        try:
            wanted = steps.send(value)
        except StopIteration as end:
            wanted = end.value
            if type(wanted) not in (Applied, Evaluate):
                return wanted
        else:
            self.stack.append((node, None, steps))
        if type(wanted) is Applied:
            return self.apply(wanted.function, wanted.arguments, node)
        if type(wanted) is Evaluate:
            self.node, self.frame = wanted
            return NEXT
        if type(wanted) is Scoped:
            return self._enter(wanted, node)
        return self.ask(wanted, node)

    def _enter(self, wanted: Scoped, node: Expression) -> Datum:
        scope = _Scope(node, wanted, self._operations)
        self._scopes.append(scope)
        self.stack.append((scope, None, scope.begin))
        return self.ask(wanted.request, node)

    def left(self) -> None:
        """The innermost scope has been left."""
        self._scopes.pop()

    def _unwound(self, exceeded: ScopeExceeded) -> Datum:
        """The value of a scope whose budget is used up; drops what waits inside it."""
        if not 1 <= exceeded.scope <= len(self._scopes):
            raise exceeded
        scope = self._scopes[exceeded.scope - 1]
        while self.stack.pop()[0] is not scope:
            pass
        del self._scopes[exceeded.scope - 1 :]
        return nonconverged(None, self._operations - scope.operations, "budget")


class Driven(Expression):
    """Goes on with the generator of a control function or of a guided form."""

    __slots__ = ()

    @override
    def resume(self, machine: Registers, frame: Frame, state: Any, value: Datum) -> Datum:
        return machine.drive(state, value, self)


class Guided(Driven):
    """A form that a generator evaluates: it yields what it needs the value of."""

    __slots__ = ()

    @override
    def enter(self, machine: Registers, frame: Frame) -> Datum:
        return machine.drive(self.steps(machine, frame), None, self)

    def steps(self, machine: Registers, frame: Frame) -> Generator[Any, Datum, Datum]:
        """Yields Applied, Evaluate, Scoped or a request; returns the value, or one of the first."""
        raise NotImplementedError


class _Scope(Expression):
    """A nested scope on the stack: it is entered, evaluated and left."""

    __slots__ = ("operations", "wanted")

    def __init__(self, node: Expression, wanted: Scoped, operations: int) -> None:
        super().__init__(node.place, node.owner)
        self.wanted = wanted
        self.operations = operations

    @override
    def resume(self, machine: Registers, frame: Frame, state: Any, value: Datum) -> Datum:
        return state(machine, value)

    def begin(self, machine: Machine, _answer: Datum) -> Datum:
        """The driver has opened the scope."""
        machine.stack.append((self, None, self._end))
        machine.node, machine.frame = self.wanted.expression, self.wanted.frame
        return NEXT

    def _end(self, machine: Machine, result: Datum) -> Datum:
        def left(machine: Machine, _answer: Datum) -> Datum:
            machine.left()
            return result

        machine.stack.append((self, None, left))
        return machine.ask(Leave(), self)
