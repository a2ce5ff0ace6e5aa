"""The reference of the command line: every command with its options and an example."""

import re
from collections.abc import Iterator
from typing import Any

from paddock.cli.program import build
from scripts.markdown import table

_EXAMPLE = re.compile(r"Example: `(.+)`")
# Documented once for all commands.
_SHARED = {"--url", "--key", "--key-file", "--context", "--help"}
# How the tests treat a command's example.
_NOTES = {
    "paddock serve": "<!-- not run: the examples use a control plane that is already running -->\n",
    # It knows the session whose snapshot it is.
    "paddock sessions restore": "<!-- exit: 1 -->\n",
    "paddock restore": "<!-- not run: no control plane may be running -->\n",
    "paddock keys rotate-admin": "<!-- not run: the other examples use the key it replaces -->\n",
    "paddock events": "<!-- runs on -->\n",
    "paddock files watch": "<!-- runs on -->\n",
    "paddock approvals watch": "<!-- runs on -->\n",
    "paddock login": "<!-- not run: it stores a key -->\n",
    "paddock context use": "<!-- exit: 2 -->\n",
    "paddock context rm": "<!-- exit: 2 -->\n",
    "paddock shell": "<!-- not run: it needs a terminal -->\n",
    # The examples' session has no network, and no repository.
    "paddock git clone": "<!-- exit: 1 -->\n",
    "paddock git status": "<!-- exit: 1 -->\n",
    "paddock git diff": "<!-- exit: 1 -->\n",
    "paddock git commit": "<!-- exit: 1 -->\n",
    "paddock git push": "<!-- exit: 1 -->\n",
    # No command runs in the examples' shell.
    "paddock shells input": "<!-- exit: 1 -->\n",
    "paddock attach": "<!-- exit: 5 -->\n",
    "paddock output": "<!-- exit: 5 -->\n",
    "paddock logs": "<!-- exit: 5 -->\n",
    "paddock wait": "<!-- exit: 5 -->\n",
    "paddock kill": "<!-- exit: 5 -->\n",
    "paddock tools run": "<!-- exit: 5 -->\n",
    # The examples' server is one machine, and no cluster.
    "paddock nodes drain": "<!-- exit: 5 -->\n",
    "paddock nodes undrain": "<!-- exit: 5 -->\n",
    "paddock nodes forget": "<!-- exit: 5 -->\n",
    "paddock cluster init": "<!-- exit: 2 -->\n",
    "paddock cluster migrate": "<!-- exit: 2 -->\n",
    "paddock cluster status": "<!-- exit: 2 -->\n",
    "paddock cluster nodes": "<!-- exit: 2 -->\n",
    "paddock cluster import": "<!-- exit: 2 -->\n",
    "paddock cluster drain": "<!-- exit: 5 -->\n",
    "paddock cluster move": "<!-- exit: 5 -->\n",
    "paddock cluster record": "<!-- exit: 2 -->\n",
    "paddock cluster undrain": "<!-- exit: 2 -->\n",
    "paddock cluster forget": "<!-- exit: 2 -->\n",
    "paddock break-glass": "<!-- not run: it needs PADDOCK_BREAK_GLASS -->\n",
    "paddock gateway": "<!-- not run: a gateway needs a cluster -->\n",
    "paddock tools arguments": "<!-- exit: 5 -->\n",
    "paddock approvals approve": "<!-- exit: 5 -->\n",
    "paddock approvals deny": "<!-- exit: 5 -->\n",
    "paddock policies explain": "<!-- exit: 4 -->\n",
    # The examples' control plane has no model.
    "paddock memory edit": "<!-- exit: 5 -->\n",
    "paddock memory remove": "<!-- exit: 5 -->\n",
    "paddock hooks remove": "<!-- exit: 5 -->\n",
    "paddock hooks deliveries": "<!-- exit: 5 -->\n",
    "paddock hooks retry": "<!-- exit: 5 -->\n",
    "paddock send": "<!-- exit: 1 -->\n",
    "paddock render": "<!-- exit: 1 -->\n",
}


def commands() -> str:
    """All commands with help, arguments, options and an example."""
    found = _commands(build(), "paddock")
    return "\n\n".join(_command(name, command) for name, command in found)


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    for part, below in getattr(command, "commands", {"": None}).items():
        if below is None:
            yield name, command
        else:
            yield from _commands(below, f"{name} {part}")


def _command(name: str, command: Any) -> str:
    parts = [f"### {name}", command.help.strip()]
    shown = [each for each in command.params if _SHARED.isdisjoint(each.opts)]
    if shown:
        rows = [(f"`{_spelling(each)}`", each.help) for each in shown]
        parts.append(table(("argument or option", "meaning"), rows))
    example = _EXAMPLE.fullmatch(command.epilog)
    if example is None:
        raise ValueError(f"{name} has no example")
    parts.append(f"{_NOTES.get(name, '')}```sh\n{example[1]}\n```")
    return "\n\n".join(parts)


def _spelling(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return parameter.metavar if parameter.required else f"[{parameter.metavar}]"
    names = ", ".join(sorted(parameter.opts, key=len, reverse=True))
    if parameter.is_flag:
        return names
    return f"{names} {parameter.metavar or 'NUMBER'}"
