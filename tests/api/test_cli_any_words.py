"""Whatever words the command line gets, what it says is about them, not about itself."""

import asyncio
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from paddock.cli import program
from paddock.cli.global_options import WITH_VALUE
from tests.api.conftest import ADMIN_KEY, Api
from tests.support.cli import Ended, run_beside
from tests.support.limits import WAIT_SECONDS

pytestmark = pytest.mark.slow

OURS = "something failed in paddock itself"
WORDS = ("", "\n", "nan", "1e999", "-1", "\udcff", "/", ".", "=", "[", "@")
# Commands that go on until they are stopped, or work on this machine's images.
ENDLESS = {"serve", "mcp", "repl"}
ELSEWHERE = {"images", "doctor", "restore"}
# Commands that go on as long as their session: they get one that is not there.
FOLLOWING = {"watch"}
# Its own command tries the options that all commands share.
FOR_ALL = "budget"
BUILT: Any = program.build()


@pytest.mark.parametrize("name", sorted(BUILT.commands.keys() - ENDLESS - ELSEWHERE))
async def test_any_word_in_any_place(
    name: str, api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PADDOCK_URL", str(api.server.make_url("/")))
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    monkeypatch.setenv("PADDOCK_STATE_DIR", str(tmp_path))
    # Building the program takes longer than most of the commands.
    monkeypatch.setattr(program, "build", lambda: BUILT)
    await api.session(id="box", permission_level="high")
    faults = []
    for path, command in commands(BUILT.commands[name], name):
        for line in lines(path, command):
            said = await ended(*line)
            if OURS in said.err or "Traceback" in said.err:
                faults.append((line, said.err))
    assert faults == []


async def ended(*line: str) -> Ended:
    """The command's end; the test fails if it does not come."""
    try:
        return await asyncio.wait_for(run_beside(*line), WAIT_SECONDS)
    except TimeoutError:
        pytest.fail(f"no end: {line}")


def commands(command: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with its words."""
    if hasattr(command, "commands"):
        for name, below in command.commands.items():
            yield from commands(below, *path, name)
    else:
        yield path, command


def lines(path: tuple[str, ...], command: Any) -> Iterator[tuple[str, ...]]:
    """The command with each word at the place of each argument, then of each option's value."""
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    session = "box" if FOLLOWING.isdisjoint(path) else "gone"
    plain = [usual(each, session) for each in arguments]
    options = [name for name in map(long, command.params) if name and with_values(name, path)]
    for word in WORDS:
        for number in range(len(plain)):
            yield (*path, "--", *plain[:number], word, *plain[number + 1 :])
        for option in options:
            yield (*path, f"{option}={word}", "--", *plain)


def long(parameter: Any) -> str | None:
    """The long name of an option that takes a value."""
    if parameter.param_type_name != "option" or parameter.is_flag:
        return None
    return str(max(parameter.opts, key=len))


def with_values(option: str, path: tuple[str, ...]) -> bool:
    """Whether the option's values are tried with this command."""
    return option not in WITH_VALUE or path == (FOR_ALL,)


def usual(argument: Any, session: str) -> str:
    """A word that the argument takes."""
    kind = argument.bare_type()
    if isinstance(kind, type) and issubclass(kind, Enum):
        return str(next(iter(kind)).value)
    if "int" in repr(kind) or "float" in repr(kind):
        return "1"
    return session if argument.name == "session" else "x"
