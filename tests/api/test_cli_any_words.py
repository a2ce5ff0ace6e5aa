"""Whatever words the command line gets, what it says is about them, not about itself."""

import asyncio
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from paddock.cli.program import build
from tests.api.conftest import ADMIN_KEY, Api
from tests.support.cli import Ended, run_beside
from tests.support.limits import WAIT_SECONDS

pytestmark = pytest.mark.slow

OURS = "something failed in paddock itself"
WORDS = ("", "\n", "nan", "1e999", "-1", "\udcff", "/", ".", "=", "[", "@")
# Commands that go on until they are stopped, or work on this machine's images.
ENDLESS = {"serve", "mcp", "repl"}
ELSEWHERE = {"images", "doctor", "restore"}


async def test_any_word_in_any_place(
    api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PADDOCK_URL", str(api.server.make_url("/")))
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    monkeypatch.setenv("PADDOCK_STATE_DIR", str(tmp_path))
    await api.session(id="box", permission_level="high")
    faults = []
    for path, command in commands(build()):
        if ENDLESS.isdisjoint(path) and ELSEWHERE.isdisjoint(path):
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
    """The command with each word at the place of each argument, then of each option."""
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    plain = [usual(each) for each in arguments]
    for word in WORDS:
        for number in range(len(plain)):
            yield (*path, "--", *plain[:number], word, *plain[number + 1 :])
        for option in options:
            if option.bare_type is not bool and option.name not in ("help", "key"):
                yield (*path, f"{max(option.opts, key=len)}={word}", "--", *plain)


def usual(argument: Any) -> str:
    """A word that the argument takes."""
    kind = argument.bare_type
    if isinstance(kind, type) and issubclass(kind, Enum):
        return str(next(iter(kind)).value)
    if "int" in repr(kind) or "float" in repr(kind):
        return "1"
    return "box" if argument.name == "session" else "x"
