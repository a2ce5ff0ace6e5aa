"""Functions on strings; each counts its result before it makes it."""

import re
from typing import Final

from orchestrator.programs.turns.lisp.builtins.primitive import Control, Primitive, Steps, wrong
from orchestrator.programs.turns.lisp.data import Cons, Datum, chain
from orchestrator.programs.turns.lisp.errors import Problem
from orchestrator.programs.turns.lisp.limits import BURST, TEXT, Allowance
from orchestrator.programs.turns.lisp.printer import displaying, short, writing
from orchestrator.programs.turns.outcome import Symbol

_DIRECTIVE = re.compile(r"~(.?)", re.DOTALL)


def _append(allowance: Allowance, *texts: str) -> str:
    _count(allowance, sum(map(len, texts)), *texts)
    return "".join(texts)


def _count(allowance: Allowance, characters: int, *sources: str) -> None:
    """Counts a text that is made from others. Raises: Problem at a limit."""
    allowance.text(characters, wide=not all(map(str.isascii, sources)))


def _substring(allowance: Allowance, text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    if not 0 <= start <= end <= len(text):
        raise Problem(f"the string has {len(text)} characters; {start} to {end} are none of them")
    _count(allowance, end - start, text)
    return text[start:end]


def _parts(allowance: Allowance, text: str, count: int) -> None:
    """Counts a list of parts of a text."""
    allowance.cells(count)
    allowance.hold(TEXT * count)
    _count(allowance, len(text), text)


def _split(allowance: Allowance, text: str, separator: str | None = None) -> Cons:
    if separator == "":
        raise Problem("the separator is empty")
    allowance.work(len(text) >> 6)
    if separator is None:
        # Words and spaces alternate, and there are at most so many words.
        _parts(allowance, text, min(len(text) // 2, allowance.limits.list_length - 1) + 1)
        words = text.split(maxsplit=allowance.limits.list_length)
        if len(words) > allowance.limits.list_length:
            _parts(allowance, text, len(words))
        return chain(words)
    _parts(allowance, text, text.count(separator) + 1)
    return chain(text.split(separator))


def _lines(allowance: Allowance, text: str) -> Cons:
    _parts(allowance, text, text.count("\n") + 1)
    lines = text.split("\n")
    return chain(lines[:-1] if lines[-1] == "" else lines)


def _join(allowance: Allowance, items: Cons, separator: str = "") -> str:
    for item in items:
        if type(item) not in (str, Symbol):
            raise wrong("string-join", "a list of strings", item)
    allowance.work(items.length)
    characters = sum(map(len, items)) + len(separator) * max(items.length - 1, 0)
    _count(allowance, characters, separator, *items)
    return separator.join(items)


def _replace(allowance: Allowance, text: str, old: str, new: str) -> str:
    if not old:
        raise Problem("the string to be replaced is empty")
    allowance.work(len(text) >> 6)
    _count(allowance, len(text) + text.count(old) * (len(new) - len(old)), text, new)
    return text.replace(old, new)


def _upper(allowance: Allowance, text: str) -> str:
    _count(allowance, _cased(text), text)
    return text.upper()


def _lower(allowance: Allowance, text: str) -> str:
    _count(allowance, _cased(text), text)
    return text.lower()


def _cased(text: str) -> int:
    """How long a text can be in the other case: some characters become three."""
    return len(text) if text.isascii() else 3 * len(text)


def _trim(allowance: Allowance, text: str) -> str:
    _count(allowance, len(text), text)
    return text.strip()


def _search(allowance: Allowance, text: str, part: str) -> Datum:
    allowance.work(len(text) >> 6)
    found = text.find(part)
    return False if found < 0 else found


def _contains(allowance: Allowance, text: str, part: str) -> bool:
    return _search(allowance, text, part) is not False


def _starts(allowance: Allowance, text: str, part: str) -> bool:
    allowance.work(len(part) >> 6)
    return text.startswith(part)


def _ends(allowance: Allowance, text: str, part: str) -> bool:
    allowance.work(len(part) >> 6)
    return text.endswith(part)


def _equal(allowance: Allowance, text: str, other: str) -> bool:
    allowance.work(len(text) >> 6)
    return text == other


def _before(allowance: Allowance, text: str, other: str) -> bool:
    allowance.work(len(text) >> 6)
    return text < other


def _symbol(allowance: Allowance, text: str) -> Symbol:
    _count(allowance, len(text), text)
    return Symbol(text)


def _symbol_text(allowance: Allowance, symbol: Symbol) -> str:
    _count(allowance, len(symbol), symbol)
    return str(symbol)


def _format(allowance: Allowance, text: str, *values: Datum) -> Steps:
    left = list(reversed(values))
    most = allowance.limits.text_characters
    pieces: list[str] = []
    total = at = 0
    for found in _DIRECTIVE.finditer(text):
        if found[1] in ("a", "s") and found[1]:
            if not left:
                raise Problem(f"format has too few values for {short(text)}")
            show = displaying if found[1] == "a" else writing
            piece = yield from show(left.pop(), most - total, allowance)
        elif found[1] in ("%", "~") and found[1]:
            piece = "\n" if found[1] == "%" else "~"
        else:
            raise Problem(f"format has ~a ~s ~% ~~, and not {found[0]}")
        pieces += [text[at : found.start()], piece]
        total += len(piece)
        at = found.end()
        _count(allowance, len(piece), piece)
        allowance.work(4)
        if allowance.burst > BURST:
            yield from allowance.rest()
    if left:
        raise Problem(f"format has {len(left)} more values than its text has ~a and ~s")
    result = "".join([*pieces, text[at:]])
    _count(allowance, len(result), result)
    return result


STRINGS: Final[tuple[Primitive | Control, ...]] = (
    Primitive("(string-append text ...)", "The strings as one.", _append),
    Primitive("(string-length text)", "How many characters.", lambda _, v: len(v), quick=True),
    Primitive("(substring text start [end])", "From start to end, without it.", _substring),
    Primitive("(string-split text [separator])", "The parts; without separator, words.", _split),
    Primitive("(string-join list [separator])", "The strings of a list as one.", _join),
    Primitive("(string-contains? text part)", "Whether the part is in it.", _contains),
    Primitive("(string-index text part)", "Where the part begins; #f if nowhere.", _search),
    Primitive("(starts-with? text part)", "Whether it begins so.", _starts),
    Primitive("(ends-with? text part)", "Whether it ends so.", _ends),
    Primitive("(string=? text text)", "Whether both are the same.", _equal),
    Primitive("(string<? text text)", "Whether the first is before the second.", _before),
    Primitive("(upcase text)", "In capitals.", _upper),
    Primitive("(downcase text)", "In small letters.", _lower),
    Primitive("(trim text)", "Without spaces and new lines around it.", _trim),
    Primitive("(replace text old new)", "With each occurrence of old replaced.", _replace),
    Primitive("(lines text)", "The lines, without their ends.", _lines),
    Primitive("(string->symbol text)", "The symbol of that name.", _symbol),
    Primitive("(symbol->string symbol)", "The name of a symbol.", _symbol_text),
    Control(
        "(format text value ...)",
        "The text with the values in it: ~a as display prints it, ~s as data, ~% a new line, ~~.",
        _format,
    ),
)
