"""The script that runs all tests: its parts at once, what failed again, and what it says."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.conftest import LONGEST
from tests.support.limits import PROGRAM_SECONDS
from tests.support.sources import ROOT
from tests.support.together import OF_A_CLUSTER, belongs

# What the script runs instead of pytest. A part ends as its word says.
PYTEST = """#!/bin/sh
case "$*" in *--last-failed*) again=yes ;; esac
for word; do
    case $word in
        cache_dir=*) remembers=$word ;;
        passes) echo "$word"; exit 0 ;;
        fails) : >always; echo "FAILED tests/test_a.py::test_a - no"; exit 1 ;;
        fails-once) [ "$again" ] || { echo "FAILED tests/test_b.py::test_b - no"; exit 1; } ;;
        waits) read said <pipe; echo "$said" ;;
        answers) echo "at once" >pipe ;;
        interrupted) kill -INT $$; echo deaf ;;
    esac
done
[ ! "$again" ] || { echo "again $remembers"; [ ! -e always ]; }
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    program = tmp_path / ".venv" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text(PYTEST)
    program.chmod(0o755)
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


def run(directory: Path, *parts: str) -> tuple[int, str]:
    """The script's exit status, and what it says."""
    done = subprocess.run(
        [ROOT / "scripts" / "parts.sh", *parts],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PROGRAM_SECONDS,
        # As a person's shell starts it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    return done.returncode, done.stdout


def test_parts_run_at_once_and_all_are_shown(directory: Path) -> None:
    assert run(directory, "waits", "answers") == (0, "at once\n")
    assert run(directory, "passes", "passes", "passes") == (0, "passes\n" * 3)


@pytest.mark.parametrize("parts", [("fails", "passes"), ("passes", "fails")])
def test_a_part_that_fails_again_fails_all_of_it(directory: Path, parts: tuple[str, str]) -> None:
    status, said = run(directory, *parts)
    assert status == 1
    # Only the part that failed ran again, with its own memory.
    assert said.count("again cache_dir") == 1
    assert f"again cache_dir=.pytest_cache/{parts.index('fails')}\n" in said
    assert said.endswith("What failed:\nFAILED tests/test_a.py::test_a - no\n")


@pytest.mark.parametrize("parts", [("fails-once", "passes"), ("passes", "fails-once")])
def test_what_passes_alone_is_named(directory: Path, parts: tuple[str, str]) -> None:
    status, said = run(directory, *parts)
    assert status == 0
    assert said.endswith("What failed, but passed alone:\nFAILED tests/test_b.py::test_b - no\n")


@pytest.mark.parametrize("parts", [("interrupted", "passes"), ("passes", "interrupted")])
def test_an_interrupt_reaches_every_part(directory: Path, parts: tuple[str, str]) -> None:
    """Tests interrupt what they start, which inherits a deaf ear."""
    assert "deaf" not in run(directory, *parts)[1]


def test_the_longest_files_are_there() -> None:
    names = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert set(LONGEST) <= names


def test_one_worker_runs_all_files_of_the_real_cluster() -> None:
    """Each worker would make one for itself."""
    short = [
        path
        for path in (ROOT / "tests" / "cluster").glob("test_*.py")
        if "\nfrom tests.support.machines import" in (text := path.read_text())
        and not re.search(r"^pytestmark = .*mark\.whole", text, re.MULTILINE)
    ]
    assert {path.name for path in short} == OF_A_CLUSTER
    assert {belongs(str(path.relative_to(ROOT))) for path in short} == {"tests/cluster"}
    for other in ("tests/integration/test_recovery.py", "tests/cluster/test_nodes.py"):
        assert belongs(other) == other
