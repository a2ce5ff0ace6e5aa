"""The words of a command, from the text in which it is given. Pure."""

import re
from collections.abc import Collection

# Commands that the agent answers itself, at levels that list their commands.
BUILTINS = frozenset({"which", "neofetch"})
# What to do instead of writing shell operators, by whether the level permits a shell.
OTHER_WAYS = {
    True: "no shell reads command: give the line as shell, or words with such characters in argv",
    False: "this level runs no shell: pass words with such characters in argv",
}
_OPERATOR = re.compile(r"[;&|><`$()\x00\n\r]")
_TOKEN = re.compile(r"""(?:"[^"]*"|'[^']*'|[^\s"']+)+""")
_SPACE = re.compile(r"\s*")


class CommandError(ValueError):
    """The command is malformed, so no decision was made."""


class DeniedError(Exception):
    """The command was refused during parsing; `rule` names the rule."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message


def shell_argv(line: str, commands: Collection[str] | None, level: str) -> list[str]:
    """The words that have bash run a line as it is.

    Raises:
        DeniedError: The level lists its commands, so it runs no shell.
        CommandError: No program can receive the line.
    """
    if commands is not None:
        raise DeniedError(
            "shell-level", f"permission level {level} runs no shell: use command or argv"
        )
    if "\0" in line:
        raise CommandError("shell has a NUL character")
    if not _is_text(line):
        raise CommandError("shell is not valid Unicode")
    return ["bash", "-c", line]


def parse_command(text: str, *, shell: bool = False) -> list[str]:
    """Splits a command string into words. No shell is involved, so nothing is expanded.

    A word may contain quoted parts with spaces. Only one leading and one trailing quote are removed
    from each word. `shell`: the level permits one, which a refusal then names.

    Raises:
        DeniedError: The text has a shell operator or a line break, quoted or not.
        CommandError: The text is empty, has an unclosed quote, or is not valid Unicode.
    """
    operator = _OPERATOR.search(text)
    if operator is not None:
        raise DeniedError(
            "shell-operators",
            f"shell operators are not allowed: {printable(operator[0])}; {OTHER_WAYS[shell]}",
        )
    if not _is_text(text):
        raise CommandError("command is not valid Unicode")
    words: list[str] = []
    position = _skip_space(text, 0)
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None or text[token.end() : token.end() + 1] in {'"', "'"}:
            raise CommandError("command has a quote that is not closed")
        words.append(_unquoted(token[0]))
        position = _skip_space(text, token.end())
    if not words or not words[0]:
        raise CommandError("command is empty")
    return words


def _is_text(text: str) -> bool:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return False
    return True


def _skip_space(text: str, position: int) -> int:
    space = _SPACE.match(text, position)
    return space.end() if space else position


def _unquoted(token: str) -> str:
    start = 1 if token[0] in "\"'" else 0
    end = len(token) - 1 if token[-1] in "\"'" else len(token)
    return token[start:end]


def printable(text: str) -> str:
    """A short, printable form of `text` for a message."""
    short = text if len(text) <= 80 else f"{text[:77]}..."
    return short if short.isprintable() else repr(short)[1:-1]
