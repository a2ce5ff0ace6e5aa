"""The programs that processes run, compared with the recorded ones."""

from sandbox_agent.enforce.caller import NOT_KNOWN, Process, Program
from sandbox_agent.enforce.images import Images


def program(number: int, *more: int) -> Program:
    return Program(f"/{number}", frozenset((0, n) for n in (number, *more)))


FIRST, CHILD = Process(10, 100), Process(11, 101)


def test_a_process_runs_what_it_ran_or_what_it_was_to_run() -> None:
    images = Images()
    assert images.agree(FIRST, program(1))
    images.record(FIRST, program(1), program(2))
    assert images.agree(FIRST, program(1))  # the exec failed
    assert images.agree(FIRST, program(2))
    assert not images.agree(FIRST, program(3))


def test_of_two_on_record_it_is_the_one_of_its_own() -> None:
    images = Images()
    images.record(FIRST, program(1), program(2))
    images.record(CHILD, program(1), program(3))
    assert not images.agree(FIRST, program(3))
    assert not images.agree(CHILD, program(2))


def test_a_fork_runs_what_any_may_run() -> None:
    images = Images()
    images.record(FIRST, program(1), program(2))
    assert images.agree(CHILD, program(2))
    assert not images.agree(CHILD, program(3))
    # This pid belongs to another process by now.
    assert images.agree(Process(10, 999), program(1))


def test_a_script_runs_as_its_interpreter() -> None:
    images = Images()
    images.record(FIRST, program(1), program(2, 3, 4))
    assert images.agree(FIRST, program(4))


def test_what_nobody_can_tell_is_no_difference() -> None:
    images = Images()
    images.record(FIRST, program(1), NOT_KNOWN)
    assert images.agree(FIRST, program(7))
    assert images.agree(CHILD, program(7))
    assert images.agree(CHILD, NOT_KNOWN)


def test_what_is_remembered_is_bounded() -> None:
    images = Images()
    for number in range(10_000):
        images.record(Process(number, 0), program(number), program(number + 1))
    assert len(images._expected) <= 1024
    assert len(images._seen) < 5000
    assert images.agree(Process(20_000, 0), program(77))
