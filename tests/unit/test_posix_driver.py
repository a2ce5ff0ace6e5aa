"""What a POSIX shell is told in a kept shell: dash, and busybox where the host has it."""

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox_agent.pty import posix_driver
from tests.support.driven_shell import DrivenShell

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=200)
# Each with the words that begin it.
SHELLS = {"dash": ["dash", "-i"], "busybox": ["busybox", "sh", "-i"]}


def begun(argv: list[str], directory: Path) -> DrivenShell:
    """A shell that waits for its first command."""
    quiet = ["/bin/sh", "-c", f"exec {shlex.join(argv)} >/dev/null"]
    shell = DrivenShell(
        quiet, posix_driver.VARIABLES, directory, posix_driver.run, posix_driver.end()
    )
    shell.tell(posix_driver.begin())
    shell.until_ready()
    return shell


@pytest.fixture(scope="module", params=[name for name in SHELLS if shutil.which(name)])
def sh(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DrivenShell]:
    made = begun(SHELLS[request.param], tmp_path_factory.mktemp("shell"))
    yield made
    made.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(TEXTS, st.integers(0, 255))
def test_any_text_arrives(sh: DrivenShell, text: str, code: int) -> None:
    command = f"printf %s {shlex.quote(text)}\n(exit {code})"
    assert sh.run(command) == (text, code, "")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(TEXTS)
def test_what_is_quoted_and_never_closed_runs_nothing(sh: DrivenShell, text: str) -> None:
    printed, _, error = sh.run(f"echo ran; : {shlex.quote(text)}'")
    assert printed == ""
    assert "nterminated quoted string" in error


def test_state_stays(sh: DrivenShell) -> None:
    """Each row: a text, what it prints, its status."""
    rows = [
        ("cd /usr; x='a b'; f() { echo \"<$x>\"; }; alias g=echo; set -- 1 2", "", 0),
        ("pwd; f; g $2", "/usr\n<a b>\n2\n", 0),
        ("false", "", 1),
        ("echo $?", "1\n", 0),
        ("readonly fixed=1; fixed=2; echo no", None, 2),
        (". /missing; echo no", None, 2),
        ("echo $? $fixed", "2 1\n", 0),
        ("cat <<END\n$((6 * 7))\nEND", "42\n", 0),
        ("break; echo on", "on\n", 0),
        ("PS1='> ' PS2='more'", "", 0),
        ("echo 'two\nlines'", "two\nlines\n", 0),
        ("printf() { echo no; }; set -u", "", 0),
        ("unset -f printf; set +u; : '" + "x" * 100_000 + "'; echo long", "long\n", 0),
        ("# nothing", "", 0),
        ("exec 3>/dev/null; echo x >&3", "", 0),
    ]
    for text, printed, status in rows:
        found = sh.run(text)
        assert found[1:] == (status, ""), text
        assert printed is None or found[0] == printed, text


def test_no_program_has_the_socket(sh: DrivenShell) -> None:
    found = sh.run("ls -l /proc/self/fd; (ls -l /proc/self/fd)")
    assert "socket:" not in found[0]
    assert sh.run("readlink /proc/self/fd/0")[0] == "/dev/tty\n"


@pytest.mark.parametrize(
    "command", ["while :; do :; done", "sleep 1000", "cat", "for i in 1 2; do sleep 1000; done"]
)
def test_an_interrupt_ends_the_command_only(sh: DrivenShell, command: str) -> None:
    sh.start(f"kept=1; echo up; {command}; echo no")
    sh.until_begun()
    sh.until_printed("up\n")
    sh.interrupt()
    assert sh.until_ready()[1].status == 130
    assert "no" not in sh.printed()
    # On a busy machine it was interrupted twice, and the second one comes late.
    while (found := sh.run("echo $kept"))[1] == 130:
        pass
    assert found[0].endswith("1\n")
