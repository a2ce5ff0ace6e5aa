"""Decides from the text alone what may be written to a governed terminal. Pure.

The control plane has already decided with patterns and policies; this check holds even if it erred.
"""

from sandbox_agent.decide.sanitize import LINE_INJECTION, control_characters, injection

# Names of additional sanitizers, and the characters that each refuses.
SANITIZERS = {"injection": LINE_INJECTION}


class RefusedError(ValueError):
    """The line may not be written; `rule` is the reason in one word."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule


def check(
    command: str, text: str, declared: frozenset[str], sanitize: list[str], max_bytes: int
) -> bytes:
    """The text as bytes, if `command` is declared and the text has no forbidden characters.

    Raises: RefusedError.
    """
    if command not in declared:
        raise RefusedError("unknown-tool", f"the tool has no command {command!r}")
    # A newline is refused, too: a line ends with its terminator only.
    if (reason := control_characters(text)) is not None:
        raise RefusedError("control-character", reason)
    for name in sanitize:
        if (reason := injection(text, SANITIZERS[name])) is not None:
            raise RefusedError("input-sanitize", reason)
    data = text.encode()
    if len(data) > max_bytes:
        message = f"the text has {len(data)} bytes; this tool's lines may have {max_bytes}"
        raise RefusedError("too-long", message)
    return data
