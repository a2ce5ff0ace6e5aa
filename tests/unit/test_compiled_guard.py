"""The guard in C: which commands it runs, and how it gets their plans."""

import struct
from typing import Any

import pytest

from sandbox_agent.decide.facilities import GUARD, WITHOUT
from sandbox_agent.enforce.command_process import Plan
from sandbox_agent.enforce.guards import availability, compiled
from sandbox_agent.enforce.profile import Profile, Root

PLAN = Plan("/bin/ls", ["ls", "-l"], {"A": "1", "B": ""}, "deep", [("a", True)], "/workspace")
PROFILE = Profile("x86_64", 5, True, b"", mdwe=True, executable=None, cookie=(1, 2))


def test_a_command_without_a_further_step_has_it() -> None:
    assert compiled.serves(PROFILE)
    assert compiled.runs(PLAN)
    assert compiled.runs(PLAN._replace(terminal=True))
    assert compiled.runs(PLAN._replace(inside=[], writable=["/data"], volumes=["/volume"]))


@pytest.mark.parametrize(
    "changed",
    [
        {"output_file": "out"},
        {"program": "ls"},
        {"writable": ["/data"]},
        {"volumes": ["/volume"]},
        {"cwd": "x" * 4096},
        {"inside": [("x" * 4096, False)]},
    ],
)
def test_other_commands_have_the_one_in_python(changed: dict[str, Any]) -> None:
    assert not compiled.runs(PLAN._replace(**changed))


@pytest.mark.parametrize(
    "changed",
    [
        {"cookie": None},
        {"ruleset": None},
        {"scoped": False},
        {"mark": (1, 2)},
        {"listened": False},
        {"root": Root(3, (1, 2))},
        {"reads": object()},
    ],
)
def test_other_profiles_have_the_one_in_python(changed: dict[str, Any]) -> None:
    assert not compiled.serves(PROFILE._replace(**changed))


def test_a_plan_is_a_head_and_words() -> None:
    head = struct.pack("<IIII", 2, 2, 1, 0)
    words = b"/workspace\0deep\0/bin/ls\0ls\0-l\0A=1\0B=\0fa\0"
    assert compiled.document(PLAN) == head + words
    of_terminal = PLAN._replace(terminal=True)
    assert compiled.document(of_terminal) == struct.pack("<IIII", 2, 2, 1, 1) + words
    last = PLAN._replace(inside=[("\udcff", False)])
    assert compiled.document(last) == head + words[:-3] + b"n\xff\0"


@pytest.mark.parametrize("word", ["a\0b", "\ud800"])
def test_words_that_no_program_can_receive_make_no_plan(word: str) -> None:
    assert compiled.document(PLAN._replace(argv=["ls", word])) == b""


def test_a_runtime_without_the_program_or_a_test_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "PROGRAM", "/no/such/program")
    assert not availability.available({})
    monkeypatch.setattr(availability, "PROGRAM", "/bin/sh")
    assert availability.available({})
    assert not availability.available({WITHOUT: f"mdwe,{GUARD}"})
