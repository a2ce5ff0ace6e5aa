"""What may be written to a governed terminal, decided by the text alone. Pure.

The control plane has decided already, with patterns and policies; this holds even if it erred.
"""

# Not even a newline: the terminator is the only one that a line gets.
_CONTROL = frozenset(map(chr, (*range(0x20), *range(0x7F, 0xA0))))
# What `sanitize` may name: text that must not occur in a command. Parentheses do no harm
# without a `$`, and every other SQL statement has some.
SANITIZERS = {"injection": frozenset(";|&$`{}[]<>!")}


class RefusedError(ValueError):
    """The line may not be written; `rule` says why in one word."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule


def check(
    command: str, text: str, declared: frozenset[str], sanitize: list[str], max_bytes: int
) -> bytes:
    """The text as bytes, when `command` is declared and the text has nothing forbidden.

    Raises: RefusedError.
    """
    if command not in declared:
        raise RefusedError("unknown-tool", f"the tool has no command {command!r}")
    control = next((character for character in text if character in _CONTROL), None)
    if control is not None:
        message = f"the text has the control character U+{ord(control):04X}"
        raise RefusedError("control-character", message)
    for name in sanitize:
        found = next((character for character in text if character in SANITIZERS[name]), None)
        if found is not None:
            message = f"the text has {found!r}, which {name!r} forbids"
            raise RefusedError("input-sanitize", message)
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise RefusedError("control-character", "the text is not Unicode") from None
    if len(data) > max_bytes:
        message = f"the text has {len(data)} bytes; this tool's lines may have {max_bytes}"
        raise RefusedError("too-long", message)
    return data
