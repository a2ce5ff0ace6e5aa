"""What a user's own type checker sees of the client: types in both interfaces."""

import inspect
import json
import re
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
PROJECT = (ROOT / "tests" / "fixtures" / "user_project.py").read_text()
WRONG = """
import paddock

paddock.session(colour="red")
with paddock.session() as s:
    s.exec(1)
    s.keep_alive("long")
    s.nothing()
"""


def checked(directory: Path, *program: str) -> tuple[list[str], str]:
    """What the program finds in a project with a right and a wrong file, and all that it says."""
    (directory / "right.py").write_text(PROJECT)
    (directory / "wrong.py").write_text(WRONG)
    (directory / "mypy.ini").write_text(f"[mypy]\nstrict = True\nmypy_path = {ROOT}\n")
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT)], "include": ["*.py"]}
    (directory / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [sys.executable, "-m", *program],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS,
        check=False,
    )
    said = done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if " error: " in line], said


@pytest.mark.parametrize(
    ("program", "wanted"),
    [
        (
            ("mypy", "--cache-dir", "cache", "right.py", "wrong.py"),
            {"call-arg", "arg-type", "attr-defined"},
        ),
        (
            ("basedpyright", "--pythonpath", sys.executable),
            {"reportCallIssue", "reportArgumentType", "reportAttributeAccessIssue"},
        ),
    ],
    ids=["mypy", "pyright"],
)
def test_a_project_is_strictly_typed(
    tmp_path: Path, program: tuple[str, ...], wanted: set[str]
) -> None:
    errors, said = checked(tmp_path, *program)
    assert errors, said
    assert [line for line in errors if "wrong.py:" not in line] == [], said
    # Each program writes its own name of what is wrong at the end of a line, in brackets.
    named = {
        name for line in said.splitlines() for name in re.findall(r"[\[(]([\w-]+)[\])]$", line)
    }
    assert wanted <= named, said


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
