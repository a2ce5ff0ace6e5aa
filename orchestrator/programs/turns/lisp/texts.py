"""How numbers, strings and symbols are written: the rules that reader and printer share."""

import re
from typing import Final

from orchestrator.programs.turns.lisp.data import MAX_BITS, Datum, number
from orchestrator.programs.turns.lisp.errors import Problem
from orchestrator.programs.turns.outcome import Symbol

CONSTANTS: Final = {"nil": None, "#t": True, "#f": False, "#true": True, "#false": False}
QUOTES: Final = {"'": "quote", "`": "quasiquote", ",": "unquote", ",@": "unquote-splicing"}

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][+-]?[0-9]+)?")
_LIKE_NUMBER = re.compile(r"[+-]?\.?[0-9]")
_PLAIN = re.compile(r"[A-Za-z0-9!$%&*+./:<=>?@^_~-]+")
# No integer of the language has more digits, signs included.
_MOST_DIGITS = MAX_BITS // 3
_ESCAPE = re.compile(r"\\(?:u\{([0-9A-Fa-f]{1,6})\}|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "|": "|"}
_SHOWN = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\"}


def number_of(text: str) -> int | float | None:
    """The number that is written so, or None. Raises: Problem if it is too large."""
    if _INTEGER.fullmatch(text):
        if len(text) > _MOST_DIGITS:
            raise Problem(f"an integer has at most {MAX_BITS} bits")
        return number(int(text))
    return number(float(text)) if _DECIMAL.fullmatch(text) else None


def atom(text: str) -> Datum:
    """The number, constant or symbol that is written so. Raises: Problem."""
    if text in CONSTANTS:
        return CONSTANTS[text]
    found = number_of(text)
    if found is not None:
        return found
    if text == ".":
        raise Problem("dotted pairs are not supported: a list is written (a b c)")
    if text.startswith("#"):
        raise Problem(f"{shortened(text)} is nothing; there are #t, #f, #| comments |#")
    if _LIKE_NUMBER.match(text):
        raise Problem(f"{shortened(text)} is neither a number nor a name")
    return Symbol(text)


def unescaped(text: str) -> str:
    """The characters that are written so between quotes or bars. Raises: Problem."""
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def _character(found: re.Match[str]) -> str:
    if found[1] is not None:
        code = int(found[1], 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise Problem(f"{found[0]} is no character")
        return chr(code)
    try:
        return _ESCAPES[found[2]]
    except KeyError:
        known = r"\n \t \r \\ \" \| \u{HEX}"
        raise Problem(f"{found[0]!r} is not an escape; there are {known}") from None


def is_plain(text: str) -> bool:
    """Whether none of its characters needs an escape between quotes or bars."""
    return text.isprintable() and not any(each in text for each in '\\"|')


def escaped(text: str, mark: str) -> str:
    """The text between two marks (`"` or `|`), with escapes where it needs them."""
    if not text.isprintable() or "\\" in text or mark in text:
        text = "".join(
            _SHOWN.get(each) or (f"\\{mark}" if each == mark else _shown(each)) for each in text
        )
    return f"{mark}{text}{mark}"


def _shown(character: str) -> str:
    return character if character.isprintable() else f"\\u{{{ord(character):x}}}"


def symbol_text(symbol: str) -> str:
    """How a symbol is written: between bars, if it would be read as something else."""
    plain = _PLAIN.fullmatch(symbol) and not _LIKE_NUMBER.match(symbol) and symbol[0] != "@"
    return str(symbol) if plain and symbol not in (".", "nil") else escaped(symbol, "|")


def shortened(text: str, most: int = 60) -> str:
    """The beginning of a text, for messages."""
    return text if len(text) <= most else f"{text[:most]}…"
