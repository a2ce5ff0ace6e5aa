"""What a user's own type checker sees of the client: types in both interfaces."""

import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import paddock
from paddock.client.faces import Face
from tests.support.limits import PROGRAM_SECONDS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROJECT = """
import asyncio
from datetime import datetime
from typing import assert_type

import paddock
from paddock import CommandResult, Paddock, PaddockSync, Session, Sync


def blocking() -> str:
    with paddock.session(permission_level="low", idle_timeout=60) as s:
        assert_type(s, Session[Sync])
        s.files.write("a.txt", "hello")
        result = s.exec("cat a.txt")
        assert_type(result, CommandResult)
        kept = s.keep_alive(60)
        assert_type(kept.deadlines.idle_at, datetime | None)
        return result.stdout


async def awaited() -> None:
    async with paddock.session() as s:
        assert_type(await s.exec("ls"), CommandResult)
    async with Paddock() as client:
        async with await client.sessions.create(labels={"a": "b"}) as made:
            async for event in made.exec_stream("ls"):
                print(event)
            print((await made.set_timeout(idle=60)).idle_timeout)


def both() -> None:
    with PaddockSync(context="work") as client:
        for each in client.sessions.list():
            print(each.id)
    asyncio.run(awaited())
"""
WRONG = """
import paddock

with paddock.session(colour="red") as s:
    s.exec(1)
    s.keep_alive("long")
    s.nothing()
"""


def checked(directory: Path, text: str) -> "subprocess.CompletedProcess[str]":
    (directory / "project.py").write_text(text)
    (directory / "mypy.ini").write_text(f"[mypy]\nstrict = True\nmypy_path = {ROOT}\n")
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(directory / "cache"), "project.py"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS,
        check=False,
    )


def test_a_project_is_strictly_typed(tmp_path: Path) -> None:
    right = checked(tmp_path, PROJECT)
    assert right.returncode == 0, right.stdout
    wrong = checked(tmp_path, WRONG)
    found = {
        line.split("[")[-1].rstrip("]") for line in wrong.stdout.splitlines() if "error" in line
    }
    assert {"call-arg", "arg-type", "attr-defined"} <= found, wrong.stdout


def calls() -> Iterator[tuple[str, Any]]:
    """Every public call of the client, and its function."""
    for name in paddock.__all__:
        value = getattr(paddock, name)
        if inspect.isfunction(value):
            yield name, value
    parts: list[type[Face[Any]]] = [Face]
    for part in parts:
        parts += [each for each in part.__subclasses__() if each not in parts]
        for name, value in vars(part).items():
            if not name.startswith("_") and (callable(value) or hasattr(value, "__wrapped__")):
                yield f"{part.__name__}.{name}", getattr(value, "__wrapped__", value)


def test_every_call_has_a_docstring_and_types() -> None:
    found = dict(calls())
    assert len(found) > 100
    for name, function in found.items():
        assert function.__doc__, name
        signature = inspect.signature(function)
        assert signature.return_annotation is not inspect.Signature.empty, name
        for parameter in [*signature.parameters.values()]:
            typed = parameter.annotation is not inspect.Parameter.empty
            assert typed or parameter.name == "self", (name, parameter.name)
