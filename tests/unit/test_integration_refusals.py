"""What models and people read when a framework's sandbox refuses, and what its end needs."""

import subprocess
import sys

import pytest

from paddock.client.errors import PermissionDeniedError, UnreachableError
from paddock.contract.remedies import REMEDIES
from paddock.integrations.refusals import explained, timed_out
from tests.support.limits import PROGRAM_SECONDS

AT_THE_END = """
import asyncio, atexit
from paddock.client.resolver import Resolver

async def found():
    return (await Resolver().resolve("localhost", 80))[0]["port"]

atexit.register(lambda: print(asyncio.run(found())))
"""


@pytest.mark.parametrize("rule", ["shell-level", "command-allowlist", "path-outside-workspace"])
def test_a_refusal_has_its_rule_and_its_remedy(rule: str) -> None:
    error = PermissionDeniedError(403, {"detail": "no shell here", "rule": rule})
    assert explained(error) == f"no shell here (rule: {rule}). {REMEDIES[rule]}"


def test_a_rule_of_a_newer_control_plane_has_no_remedy() -> None:
    error = PermissionDeniedError(403, {"detail": "not now", "rule": "curfew"})
    assert explained(error) == "not now (rule: curfew)"


def test_other_errors_are_their_own_text() -> None:
    assert explained(UnreachableError("nobody answers")) == "nobody answers"
    assert explained(PermissionDeniedError(403, {"detail": "not yours"})) == "not yours"


def test_a_time_out_names_its_limit() -> None:
    assert timed_out(1.5) == "the command did not end within 1.5 s, and was ended"
    assert timed_out(None) == "the command did not end within its level's limit, and was ended"


def test_a_host_is_found_while_the_program_ends() -> None:
    """Hooks of the end close sessions, when no thread begins any more."""
    done = subprocess.run(
        (sys.executable, "-c", AT_THE_END),
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "80\n", "")
