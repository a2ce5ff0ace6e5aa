"""The manual page and the completions of shells, from the command line itself."""

import re
from collections.abc import Iterator
from typing import Any

from typer._completion_shared import get_completion_script

from paddock.cli.program import build

_PROGRAM = "paddock"
_COMPLETE = "_PADDOCK_COMPLETE"
_SPECIAL = re.compile(r"^([.'])", re.MULTILINE)


def manual_page(version: str) -> str:
    """`paddock(1)`: every command with its arguments and options."""
    root = build()
    lines = [
        f'.TH PADDOCK 1 "" "paddock {version}" "User Commands"',
        ".SH NAME",
        "paddock \\- governed sandboxes for AI agents",
        ".SH SYNOPSIS",
        ".B paddock",
        "[\\fIoption\\fR]... \\fIcommand\\fR [\\fIargument\\fR]...",
        ".SH DESCRIPTION",
        _text(str(root.help)),
        ".SH COMMANDS",
    ]
    for name, command in _commands(root, _PROGRAM):
        lines += [f".SS {_text(name)}", _text(command.help or "")]
        for each in command.params:
            spelled = ", ".join(each.opts) if each.param_type_name == "option" else each.metavar
            lines += [".TP", f".B {_text(spelled or each.name)}", _text(each.help or "")]
    lines += [
        ".SH FILES",
        ".TP",
        ".I /etc/paddock/environment, /etc/paddock/paddock.toml",
        "Settings of the service on this machine.",
        ".TP",
        ".I /var/lib/paddock",
        "The state directory: the record, the keys, the workspaces.",
        ".SH SEE ALSO",
        ".BR docker (1),",
        "/usr/share/doc/paddock",
    ]
    return "\n".join(lines) + "\n"


def completions() -> dict[str, str]:
    """The scripts by the path below /usr/share that each shell looks at."""
    where = {
        "bash": "bash-completion/completions/paddock",
        "zsh": "zsh/vendor-completions/_paddock",
        "fish": "fish/vendor_completions.d/paddock.fish",
    }
    return {
        path: get_completion_script(prog_name=_PROGRAM, complete_var=_COMPLETE, shell=shell) + "\n"
        for shell, path in where.items()
    }


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    for part, below in getattr(command, "commands", {"": None}).items():
        if below is None:
            yield name, command
        else:
            yield from _commands(below, f"{name} {part}")


def _text(text: str) -> str:
    """Plain text for troff: nothing of it is an instruction."""
    escaped = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return _SPECIAL.sub(r"\\&\1", escaped)
