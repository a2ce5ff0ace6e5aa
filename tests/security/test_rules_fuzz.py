"""Commands that the string rules allow execute no other program and stay in the workspace.

The tests run generated commands that the rules accept, where nothing else would stop them, and
judge them by the kernel's own resolution of every path that they ran, opened or changed. Facts
that a command can learn without opening a file (stat, access, readlink) do not count: every
level shows where links lead.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings

from images import base
from orchestrator.rules.policy.decision import check_command
from orchestrator.rules.policy.levels import Level, load_levels
from sandbox_agent.decide.command_words import CommandError, DeniedError
from tests.support.command_lines import argument_lists, command_strings, working_directories
from tests.support.limits import PROGRAM_SECONDS
from tests.support.traced.playground import CANARY
from tests.support.traced.tracer import OUTPUT
from tests.support.traced_box import Run, TracedBox

# PADDOCK_FUZZ_EXAMPLES sets the length of a long run, which is different each time.
_LONG = os.environ.get("PADDOCK_FUZZ_EXAMPLES")
_EXAMPLES = int(_LONG or 1200)
# The agent runs these itself.
_NOT_RUN = {"which", "neofetch"}

# Files of the image that the programs need to read.
_BASELINE = re.compile(
    r"/etc/(ld\.so\.cache|nsswitch\.conf|passwd|group|localtime|xattr\.conf)"
    r"|/etc/(host\.conf|hosts|resolv\.conf|gai\.conf|ssl/openssl\.cnf|ssl/certs/.*)"
    r"|/usr/lib/[a-z0-9_]+-linux-gnu/[^/]+\.so[.0-9]*"
    r"|/usr/lib/[a-z0-9_]+-linux-gnu/(gconv|sasl2)(/.*)?"
    r"|/usr/lib/locale/.*|/usr/share/(zoneinfo|ca-certificates)/.*"
    r"|/proc/filesystems|/proc/[0-9]+/(mounts|mountinfo|maps)|/dev/null"
)


@pytest.fixture(scope="module")
def traced(sandbox_image: str) -> Iterator[TracedBox]:
    with (
        closing(base.connect(PROGRAM_SECONDS)) as client,
        TracedBox(client, sandbox_image) as box,
    ):
        yield box


def _within(path: str) -> bool:
    """Whether the path is in the workspace, or the output, whose time `touch -` changes."""
    return path in {"/workspace", OUTPUT} or path.startswith("/workspace/")


def _violations(run: Run, argv: Sequence[str]) -> list[str]:
    """The actions of the command that no rule allows."""
    found = []
    # find opens only the root, to learn whether the kernel supports O_CLOEXEC.
    harmless = {("read", "/")} if "-samefile" in argv else set()
    for number, (kind, path) in enumerate(run.touched):
        if (kind, path) in harmless:
            continue
        if kind == "exec":
            allowed = number == 0 and path == run.program
        else:
            allowed = _within(path) or (kind == "read" and _BASELINE.fullmatch(path) is not None)
        if not allowed:
            found.append(f"{kind} {path}")
    found += [f"changed {path}" for path in run.changed]
    if CANARY in run.output:
        found.append(f"printed a canary: {run.output[:200]!r}")
    return found


@pytest.mark.parametrize(("name", "share"), [("low", 1.0), ("medium", 0.4)])
def test_what_the_rules_allow_stays_inside(traced: TracedBox, name: str, share: float) -> None:
    level = load_levels()[name]
    assert level.commands is not None
    names = set(level.commands) - _NOT_RUN
    if name == "medium":  # the test of low covers the commands that low has
        names -= set(load_levels()["low"].commands or ())
    examples = int(_EXAMPLES * share)
    ran = dict.fromkeys(sorted(names), 0)

    @settings(
        max_examples=examples,
        derandomize=_LONG is None,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        command=argument_lists([*ran]) | command_strings([*ran]),
        cwd=working_directories(),
    )
    def holds(command: str | list[str], cwd: str) -> None:
        argv = _allowed(level, command, cwd)
        if argv is None:
            return
        run = traced.run(argv, level.commands or (), cwd)
        if run.refused is None:
            ran[argv[0]] += 1
        found = _violations(run, argv)
        if found:
            traced.renew()  # its changes must not affect the next example
        assert not found, (argv, cwd, found)

    holds()
    # Rules that refuse everything would also produce no violation.
    assert all(ran.values()), ran
    assert sum(ran.values()) > examples // 4, ran


@pytest.mark.parametrize(
    "line",
    [
        # A link in the destination with the name of a source, or a link as the destination.
        "cp a.txt over",
        "cp -r sub pile",
        "mv a.txt from/x",
        # A directory that the command creates, which makes `..` or a link lead somewhere.
        "mkdir -p new/../out-dir/made",
        "mkdir new late/made",
        # A link that the command moves into the path of a later source.
        "mv from/brought brought/a.txt .",
        # `..` after a link, in a path that only as text is in the workspace.
        "cat /canary/../workspace/out-dir/../a.txt",
        "cat /./workspace/out-dir/../a.txt",
        # The name of a time zone can be a path.
        'touch -d TZ="/canary/secret"0 a.txt',
        'find . -newermt TZ="/canary/secret"0',
        'date -d TZ="/canary/secret"0',
    ],
)
def test_a_way_out_that_was_found_is_closed(traced: TracedBox, line: str) -> None:
    level = load_levels()["medium"]
    assert level.commands is not None
    argv = _allowed(level, line.split(), "/workspace")
    if argv is not None:
        found = _violations(traced.run(argv, level.commands), argv)
        traced.renew()
        assert not found


@pytest.mark.parametrize(
    ("argv", "seen"),
    [
        (["cat", "/canary/a.txt"], "read /canary/a.txt"),
        (["cat", "out-file"], "read /canary/a.txt"),
        (["ls", "/etc"], "read /etc"),
        (["touch", "out-dir/new"], "write /canary/sub/new"),
        (["mv", "a.txt", "rel-dir/moved"], "write /canary/moved"),
        (["rm", "proc/a.txt"], "write /canary/a.txt"),
        (["mkdir", "/tmp/made"], "write /tmp/made"),
        (["chmod", "700", "out-file"], "write /canary/a.txt"),
        (["ln", "-s", "x", "/canary/link"], "write /canary/link"),
        (["truncate", "-s0", "/canary/a.txt"], "write /canary/a.txt"),
        (["env", "evil"], "exec /usr/local/bin/evil"),
        (["find", "tool", "-exec", "./tool", ";"], "exec /workspace/tool"),
        (["env", "sh", "-c", "cat secret; exec 3<out-file"], "read /canary/a.txt"),
    ],
)
def test_the_judge_sees_what_gets_out(traced: TracedBox, argv: list[str], seen: str) -> None:
    run = traced.run(argv, (), checked=False)
    traced.renew()
    assert seen in _violations(run, argv)


def _allowed(level: Level, command: str | list[str], cwd: str) -> list[str] | None:
    """The words of a command that the rules accept."""
    try:
        if isinstance(command, str):
            return check_command(level, command, None, cwd)[0]
        return check_command(level, None, command, cwd)[0]
    except (CommandError, DeniedError):
        return None
