"""Processes that are started without running Python in them."""

import _posixsubprocess
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sandbox_agent.enforce import spawn
from sandbox_agent.enforce.command_process import Pipes, Plan
from sandbox_agent.enforce.guard_messages import Failed, Step
from sandbox_agent.enforce.profile import Profile
from sandbox_agent.enforce.reads.read_profile import Reads
from sandbox_agent.enforce.spawn import Spawner

PLAN = Plan("/bin/sh", ["sh"], {"A": "1"}, ".", [], "/")
PROFILE = Profile("x86_64", 3, True, b"", True, None, (1, 2))


@pytest.fixture
def null() -> Iterator[Pipes]:
    descriptor = os.open(os.devnull, os.O_RDWR)
    yield Pipes(descriptor, descriptor, descriptor)
    os.close(descriptor)


def status_of(spawner: Spawner, plan: Plan, pipes: Pipes) -> int:
    """The wait status of the plan's process, run as the tests' own user."""
    pid = spawner.spawn(plan, pipes, os.getuid())
    return os.waitpid(pid, 0)[1]


def test_only_what_needs_no_further_step_is_started_so() -> None:
    reads = Reads(None, b"", manifest=None, denials=None, enforced=True, recorded=True)  # type: ignore[arg-type]
    assert spawn.applies(PROFILE, PLAN)
    assert spawn.applies(PROFILE._replace(ruleset=None, scoped=False), PLAN)
    for profile, plan in (
        (PROFILE._replace(cookie=None), PLAN),
        (PROFILE._replace(reads=reads), PLAN),
        (PROFILE._replace(scoped=False), PLAN),
        (PROFILE, PLAN._replace(terminal=True)),
        (PROFILE, PLAN._replace(program="sh")),
    ):
        assert not spawn.applies(profile, plan), (profile, plan)


def test_only_an_interpreter_with_the_known_arguments_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As Python 3.12 and 3.13 tell them.
    known = ", ".join(["$module", *spawn._ARGUMENTS, "/"])
    for signature, used in (
        (f"({known})", True),
        (f"({known.replace('gid, extra_groups', 'extra_groups, gid')})", False),
        (f"({known.replace(', allow_vfork', '')})", False),
        (None, False),
    ):
        told = SimpleNamespace(__text_signature__=signature)
        monkeypatch.setattr(sys, "version_info", (3, 99, 0))
        monkeypatch.setattr(_posixsubprocess, "fork_exec", told)
        assert spawn.applies(PROFILE, PLAN) == used, signature


def test_it_has_a_session_and_the_streams_and_variables_of_its_own() -> None:
    read, write = os.pipe()
    null = os.open(os.devnull, os.O_RDONLY)
    script = "echo $A; cut -d' ' -f6 /proc/self/stat; exit 7"
    plan = PLAN._replace(argv=["sh", "-c", script], env={"A": "ä", "PATH": os.environ["PATH"]})
    spawner = Spawner()
    pid = spawner.spawn(plan, Pipes(null, write, write), os.getuid())
    os.close(write)
    os.close(null)
    said = os.read(read, 4096)
    while more := os.read(read, 4096):
        said += more
    os.close(read)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert said.decode().split() == ["ä", str(pid)]


def test_why_a_program_was_not_executed(null: Pipes, tmp_path: Path) -> None:
    spawner = Spawner()
    text = tmp_path / "text"
    text.write_text("no program")
    for program, number in (
        ("/nowhere", errno.ENOENT),
        (str(text), errno.EACCES),
        ("/bin/sh/x", errno.ENOTDIR),
    ):
        status = status_of(spawner, PLAN._replace(program=program), null)
        assert spawner.failure(status) == Failed(Step.PROGRAM, number), program


def test_a_program_may_end_with_the_status_of_a_failure(null: Pipes) -> None:
    spawner = Spawner()
    for code in (0, 1, 127, 255):
        status = status_of(spawner, PLAN._replace(argv=["sh", "-c", f"exit {code}"]), null)
        assert os.waitstatus_to_exitcode(status) == code
        assert spawner.failure(status) is None


@pytest.mark.parametrize("early", [True, False])
def test_a_step_before_the_program_is_named(null: Pipes, early: bool) -> None:
    spawner = Spawner()
    os.write(spawner._say, b"OSError:b:noexec" if early else b"OSError:b:")
    step = Step.START if early else Step.PROGRAM
    assert spawner.failure(255 << 8) == Failed(step, errno.EAGAIN)


def test_words_with_nul_start_nothing(null: Pipes) -> None:
    spawner = Spawner()
    for plan in (
        PLAN._replace(argv=["a\0b"]),
        PLAN._replace(env={"A": "\0"}),
        PLAN._replace(program="/bin/\0"),
    ):
        with pytest.raises(ValueError, match="null"):
            spawner.spawn(plan, null, os.getuid())
