"""Functions that make outcomes and look at them."""

from typing import Final

from orchestrator.programs.turns.lisp.builtins.primitive import Primitive
from orchestrator.programs.turns.lisp.data import EMPTY, Datum
from orchestrator.programs.turns.lisp.errors import Problem
from orchestrator.programs.turns.lisp.limits import FUNCTION, Allowance
from orchestrator.programs.turns.lisp.made_outcomes import made
from orchestrator.programs.turns.lisp.printer import short
from orchestrator.programs.turns.outcome import MEMBERS, Outcome, Symbol

# More characters than any member's name has.
_MOST_NAME = 100


def _ok(allowance: Allowance, value: Datum) -> Outcome:
    allowance.hold(FUNCTION)
    return made("ok", value)


def _proposed(allowance: Allowance, value: Datum) -> Outcome:
    allowance.hold(FUNCTION)
    return made("proposed", value, EMPTY)


def _nonconverged(allowance: Allowance, value: Datum, n: int, reason: Datum) -> Outcome:
    allowance.hold(FUNCTION)
    return made("nonconverged", value, n, reason)


def _cycle(allowance: Allowance, value: Datum, length: int, signatures: Datum) -> Outcome:
    allowance.hold(FUNCTION)
    return made("cycle", value, length, signatures)


def _needs(allowance: Allowance, kind: Datum, text: str, context: Datum = None) -> Outcome:
    allowance.hold(FUNCTION)
    return made("needs", kind, text, context)


def _tag(_allowance: Allowance, outcome: Outcome) -> Symbol:
    return Symbol(outcome.tag)


def _value(_allowance: Allowance, outcome: Outcome) -> Datum:
    return outcome.value


def _member(_allowance: Allowance, outcome: Outcome, symbol: Symbol) -> Datum:
    name = symbol[:_MOST_NAME].replace("-", "_")
    if name not in MEMBERS[outcome.tag]:
        names = " ".join(MEMBERS[outcome.tag]).replace("_", "-")
        raise Problem(f"an outcome {outcome.tag} has {names}, and no {short(symbol)}")
    return outcome.member(name)


OUTCOMES: Final = (
    Primitive("(ok value)", "The outcome of a program that is done.", _ok),
    Primitive("(proposed value)", "The outcome of changes that the host may commit.", _proposed),
    Primitive(
        "(nonconverged value n reason)",
        "The outcome that n rounds were not enough; reason is 'budget or 'max-iterations.",
        _nonconverged,
    ),
    Primitive(
        "(cycle value length list)", "The outcome of repeated values; their digests.", _cycle
    ),
    Primitive(
        "(needs kind text [context])",
        'The outcome that something is missing, like (needs \'needs-evidence "the log").',
        _needs,
    ),
    Primitive("(outcome-tag outcome)", "Its tag as a symbol, like ok.", _tag, quick=True),
    Primitive("(outcome-value outcome)", "Its value; nil without one.", _value, quick=True),
    Primitive("(outcome-member outcome symbol)", "One of its members, like 'reason.", _member),
)
