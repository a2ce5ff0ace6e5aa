"""Options of all commands, wherever they are typed: before a command they mean the same. Pure."""

from collections.abc import Sequence
from typing import Any

WITH_VALUE = ("--url", "--key", "--key-file", "--context")
_FLAGS = ("--json",)


def after_the_command(program: Any, words: Sequence[str]) -> list[str]:
    """The words with the options of all commands moved behind the command's name."""
    rest, names, moved = list(words), [], []
    group = program
    while rest and hasattr(group, "commands"):
        word = rest[0]
        name, sign, _value = word.partition("=")
        if word in _FLAGS or (sign and name in WITH_VALUE):
            moved.append(rest.pop(0))
        elif word in WITH_VALUE and len(rest) > 1:
            moved += (rest.pop(0), rest.pop(0))
        elif word in group.commands:
            names.append(rest.pop(0))
            group = group.commands[word]
        else:
            break
    # Without a command, its own words say what is wrong.
    return list(words) if hasattr(group, "commands") else [*names, *moved, *rest]
