"""The first change that CONTRIBUTING.md describes works as it is written there, on a copy."""

import json
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.state.session import Session
from tests.support.limits import WAIT_SECONDS
from tests.support.sources import ROOT

_DIFF = re.compile(r"^ *```diff\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"^\+\+\+ b/(.+)$", re.MULTILINE)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The packages of an installed server."""
    for name in ("api", "images", "orchestrator", "paddock", "sandbox_agent"):
        ignored = shutil.ignore_patterns("__pycache__", "static")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    return tmp_path


@pytest.mark.slow
def test_a_member_of_an_answer_touches_the_contract_only(copy: Path) -> None:
    before = _members_of_a_session(copy)
    text = (ROOT / "CONTRIBUTING.md").read_text()
    diffs = [textwrap.dedent(diff) for diff in _DIFF.findall(text)]
    assert len(diffs) == 1
    _apply(diffs[0], copy)
    after = _members_of_a_session(copy)
    added = [name for name in after if name not in before]
    assert len(added) == 1
    assert hasattr(Session, added[0])


def _members_of_a_session(copy: Path) -> dict[str, Any]:
    """Those in the document that `make openapi` would write; its example has them all."""
    run = [sys.executable, "-m", "paddock", "openapi"]
    done = subprocess.run(run, cwd=copy, check=True, capture_output=True, timeout=WAIT_SECONDS)
    schema = json.loads(done.stdout)["components"]["schemas"]["Session"]
    members: dict[str, Any] = schema["properties"]
    (example,) = schema["examples"]
    assert members.keys() == example.keys()
    return members


def _apply(diff: str, copy: Path) -> None:
    """Replaces each part of the diff where its lines are; they must be there once."""
    (name,) = _FILE.findall(diff)
    path = copy / name
    text = path.read_text()
    for old, new in _parts(diff):
        assert text.count(old) == 1, f"{name} has not: {old}"
        text = text.replace(old, new)
    path.write_text(text)


def _parts(diff: str) -> Iterator[tuple[str, str]]:
    for part in diff.split("@@\n")[1:]:
        lines = part.splitlines()
        old, new = (
            "".join(f"{line[1:]}\n" for line in lines if not line.startswith(left_out))
            for left_out in "+-"
        )
        yield old, new
