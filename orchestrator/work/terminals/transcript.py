"""The lines of a transcript. Pure.

`[MM:SS.d] EVENT    fields`: the time since the terminal was opened, the event padded to nine
columns, two spaces between fields. Text of a client or a tool is quoted and escaped, so that nobody
can forge a line.
"""

from collections.abc import Sequence

from sandbox_agent.decide import excerpts

_EVENT_COLUMNS = 9
_DECISIONS = {"allow": "ALLOW", "deny": "DENY", "pending": "PENDING_APPROVAL"}
_NONE = "-"
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def line(seconds: float, event: str, fields: Sequence[str]) -> str:
    """One line, with its newline; `seconds` since the start."""
    tenths = max(0, int(seconds * 10))
    clock = f"[{tenths // 600:02}:{tenths // 10 % 60:02}.{tenths % 10}]"
    return f"{clock} {event:<{_EVENT_COLUMNS}}{'  '.join(fields)}".rstrip(" ") + "\n"


def startup(command: str) -> list[str]:
    """What was started, in the manifest's own words."""
    return [escaped(command)]


def shown(prompt: str, state: str) -> str:
    """A prompt and its state."""
    return f"prompt={quoted(prompt.rstrip())} state={escaped(state)}"


def asked(text: str, decision: str, scope: str | None, command: str) -> list[str]:
    """A line that a client wanted to send, and the decision; `command` may be empty.

    A long refused line is shortened, because refusals are free.
    """
    text = excerpts.text(text) if decision == "deny" else text
    scoped = [] if scope is None else [f"scope={escaped(scope)}"]
    return [
        quoted(text),
        f"cedar={_DECISIONS[decision]}",
        *scoped,
        f"pattern={escaped(command or _NONE)}",
    ]


def approved(human: str) -> list[str]:
    """The approval of the line that follows."""
    return [f"human={escaped(human)}", "cedar=ALLOW"]


def output_size(lines: int, size: int) -> str:
    """The size of a tool's output."""
    return f"{lines} {'line' if lines == 1 else 'lines'}, {size} bytes"


def late(text: str, size: int) -> list[str]:
    """Output that answers no line; of a long text, `text` has only the beginning."""
    return [f"{size} bytes", *([quoted(text)] if text else [])]


def ended(reason: str, exit_code: int | None, interactions: int) -> list[str]:
    """The last line."""
    code = "unknown" if exit_code is None else str(exit_code)
    return [f"reason={escaped(reason)}", f"exit_code={code}", f"interactions={interactions}"]


def quoted(text: str) -> str:
    """The text in quotes, on one line, without invisible characters."""
    return f'"{escaped(text)}"'


def escaped(text: str) -> str:
    """The text with quotes, backslashes and unprintable characters escaped."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return text
    return "".join(_escape(character) for character in text)


def _escape(character: str) -> str:
    known = _ESCAPES.get(character)
    if known is not None:
        return known
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
