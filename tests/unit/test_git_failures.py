"""Failures of git are one line with a remedy."""

from datetime import UTC, datetime
from typing import Any

import pytest

from paddock.client.git_failures import Failed, denied_host, explained
from paddock.contract.base import model_example
from paddock.contract.commands import CommandResult
from paddock.contract.egress import EgressDraft

TUNNEL = (
    "Cloning into 'greet'...\n"
    "fatal: unable to access 'https://git.example/greet.git/': "
    "CONNECT tunnel failed, response 403\n"
)
INSPECTED = (
    "remote: Paddock denied this request: no rule allows GET /greet.git/info/refs.\n"
    "fatal: unable to access 'https://git.example:8443/greet.git/': "
    "The requested URL returned error: 403\n"
)


def result(stderr: str = "", **members: Any) -> CommandResult:
    """Of a command that failed."""
    given = {"exit_code": 128, "stdout": "", "stderr": stderr, **members}
    return CommandResult.model_validate({**model_example(CommandResult), **given})


def draft(host: str, number: int, *, port: int = 443, second: int = 0) -> EgressDraft:
    """A denied request, last seen at that second."""
    seen = datetime(2026, 3, 4, 9, 30, second, tzinfo=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    members = {"host": host, "number": number, "port": port, "last_seen": seen}
    return EgressDraft.model_validate({**model_example(EgressDraft), **members})


def test_an_image_without_git_is_told_with_one_that_has_it() -> None:
    failed = explained("clone", result(error="cannot run git: No such file or directory"))
    assert failed.what == "the session's image has no git"
    assert "`sandbox`" in (failed.remedy or "")


@pytest.mark.parametrize(
    ("stderr", "host"),
    [
        (TUNNEL, ("git.example", None)),
        (INSPECTED, ("git.example", 8443)),
        ("fatal: unable to access 'https://git.example/': The requested URL failed", None),
        ("fatal: CONNECT tunnel failed, response 403", None),
        # By the host itself.
        ("fatal: unable to access 'https://git.example/': returned error: 403", None),
    ],
)
def test_the_host_that_was_denied(stderr: str, host: tuple[str, int | None] | None) -> None:
    assert denied_host(result(stderr)) == host


def test_the_rule_that_denied_the_host_is_named() -> None:
    drafts = [
        draft("git.example", 1),
        draft("other.example", 2, second=9),
        draft("git.example", 3, second=5),
        draft("git.example", 4, port=8443),
    ]
    assert explained("clone", result(TUNNEL), drafts, "web-1") == Failed(
        "the way out denies git.example:443 by rule not-listed",
        "an admin allows it: `paddock egress allow web-1 --draft 3`",
    )
    assert "--draft 4`" in (explained("push", result(INSPECTED), drafts, "web-1").remedy or "")
    failed = explained("clone", result(TUNNEL))
    assert failed.what.endswith("CONNECT tunnel failed, response 403")


@pytest.mark.parametrize(
    ("stderr", "remedy"),
    [
        ("fatal: could not read Username for 'https://git.example': No such device", "`secret`"),
        ("fatal: unable to access 'https://git.example/': returned error: 403", "`secret`"),
        ("remote: no\nfatal: Authentication failed for 'https://git.example/'", "`secret`"),
        ("fatal: unable to access 'https://a.example/': Could not resolve host: a.example", "way"),
        ("fatal: unable to access 'https://a.example/': SSL certificate problem: x", "inspect"),
        ("*** Please tell me who you are.\nfatal: unable to auto-detect", "`author`"),
        ("fatal: not a git repository (or any of the parent directories): .git", "`path`"),
        ("! [rejected] main\nerror: failed to push some refs\nhint: fetch first", "fetch"),
    ],
)
def test_known_failures_have_a_remedy(stderr: str, remedy: str) -> None:
    assert remedy in (explained("push", result(stderr)).remedy or "")


def test_an_unknown_failure_is_the_line_that_says_what_is_wrong() -> None:
    said = "warning: a\nerror: pathspec 'x' did not match\nhint: b\n"
    assert explained("add", result(said)).what == "git add failed: pathspec 'x' did not match"
    clean = result(stdout="On branch main\nnothing to commit, working tree clean\n")
    assert explained("commit", clean).what.endswith(": nothing to commit, working tree clean")
    assert explained("add", result()).what == "git add failed: it ended with 128"
    assert len(explained("add", result("fatal: " + "x" * 10**6)).what) < 500
    assert explained("add", result(timed_out=True)).remedy == "give it a longer timeout"
    entered = explained("add", result(error="cannot enter directory 'x'"))
    assert entered == Failed("cannot enter directory 'x'", "give `path`, the directory of a clone")
