"""The loop of kept shells in a real bash, and the reports that it sends."""

import os
import select
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox_agent.enforce.command_process import CONTROL_FD
from sandbox_agent.pty import device
from sandbox_agent.pty.shell_driver import VARIABLES, Begun, Ready, Reports, run
from tests.support.limits import WAIT_SECONDS

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=200)
# A busy machine may not have come to the command when it is interrupted first.
MOST_INTERRUPTS = 30


class Bash:
    """A kept shell, as a guard starts it."""

    def __init__(self, directory: Path) -> None:
        ours, theirs = socket.socketpair()
        self.master, slave = device.open_pair(24, 80)
        device.make_plain(slave)

        def become() -> None:
            os.setsid()
            os.close(os.open(os.ttyname(slave), os.O_RDWR))  # becomes the controlling terminal

        os.dup2(theirs.fileno(), CONTROL_FD)
        self.process = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "--noediting", "-i"],
            env={"PATH": os.environ["PATH"], "TERM": "dumb", "HISTFILE": "/dev/null", **VARIABLES},
            cwd=directory,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            pass_fds=(CONTROL_FD,),
            preexec_fn=become,
        )
        theirs.close()
        os.close(CONTROL_FD)
        os.close(slave)
        self._socket, self._reports, self._number = ours, Reports(), 0
        self.until_ready()

    def run(self, text: str) -> tuple[str, int, str]:
        """What a command prints, how it ends, and the error of its syntax."""
        self.start(text)
        begun, ready = self.until_ready()
        return self.printed(), ready.status, begun.syntax_error if begun else ""

    def start(self, text: str) -> None:
        self._number += 1
        self._socket.sendall(run(self._number, text))

    def until_ready(self) -> tuple[Begun | None, Ready]:
        begun = None
        while True:
            readable, _, _ = select.select([self._socket], [], [], WAIT_SECONDS)
            assert readable, "bash does not report"
            for report in self._reports.take(self._socket.recv(65536)):
                assert report.number == self._number
                if isinstance(report, Ready):
                    return begun, report
                begun = report

    def interrupt(self) -> None:
        """Interrupts it until it reports: bash may lose one while it is busy."""
        for _ in range(MOST_INTERRUPTS):
            device.interrupt(self.master)
            if select.select([self._socket], [], [], 2)[0]:
                return
        pytest.fail("the command is not interrupted")

    def until_begun(self) -> None:
        (report,) = self._reports.take(self._socket.recv(65536))
        assert isinstance(report, Begun)

    def until_printed(self, text: str) -> None:
        data = ""
        while text not in data:
            readable, _, _ = select.select([self.master], [], [], WAIT_SECONDS)
            assert readable, f"{text} is not printed"
            data += os.read(self.master, 65536).decode()

    def printed(self) -> str:
        data = b""
        while True:
            try:
                data += os.read(self.master, 65536)
            except BlockingIOError:
                return data.decode()

    def close(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._socket.close()
        os.close(self.master)


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bash]:
    made = Bash(tmp_path_factory.mktemp("shell"))
    yield made
    made.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(TEXTS, st.integers(0, 255))
def test_any_text_arrives(bash: Bash, text: str, code: int) -> None:
    command = f"printf %s {shlex.quote(text)}\n(exit {code})"
    assert bash.run(command) == (text, code, "")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(TEXTS)
def test_what_is_quoted_and_never_closed_runs_nothing(bash: Bash, text: str) -> None:
    printed, _, error = bash.run(f"echo ran; : {shlex.quote(text)}'")
    assert printed == ""
    assert "unexpected EOF" in error


def test_what_a_command_can_do_to_the_loop(bash: Bash) -> None:
    """Each row: a text, what it prints, its status."""
    rows = [
        ("break; continue; echo on", None, 0),
        ("for i in 1 2; do break; done; echo $i", "1\n", 0),
        ("return 3", None, 2),
        ("declare -A map=([k]=v); readonly fixed=1", "", 0),
        ("echo ${map[k]} $fixed", "v 1\n", 0),
        ("eval() { echo no; }; read() { echo no; }; printf() { echo no; }", "", 0),
        ("unset -f eval read printf; set -u; IFS=x", "", 0),
        ("echo $missing", None, 1),
        ("set +u; unset IFS; (exit 9)", "", 9),
        ("echo $?", "9\n", 0),
        ("PROMPT_COMMAND='echo no'; PS1='no '; trap 'echo no' EXIT; trap - EXIT", "", 0),
        ("env | grep -c paddock", "0\n", 1),
        (f"echo x >&{CONTROL_FD}", None, 1),
        ("set -x; set +x 2>/dev/null", None, 0),
    ]
    for text, printed, status in rows:
        found = bash.run(text)
        assert found[1:] == (status, ""), text
        assert printed is None or found[0] == printed, text


def test_an_interrupt_ends_the_command_only(bash: Bash) -> None:
    bash.start("kept=1; echo up; while :; do :; done; echo no")
    bash.until_begun()
    bash.until_printed("up\n")
    bash.interrupt()
    _, ready = bash.until_ready()
    assert ready.status == 130
    assert "no" not in bash.printed()
    # On a busy machine it was interrupted twice, and the second one comes late.
    while (found := bash.run("echo $kept"))[1] == 130:
        pass
    assert found[0].endswith("1\n")


@given(st.lists(st.tuples(st.integers(0, 10**18 - 1), st.integers(0, 255), TEXTS), max_size=5))
def test_reports_may_come_in_any_pieces(found: list[tuple[int, int, str]]) -> None:
    sent = b"".join(
        b"begin\0%d\0\0%s\0ready\0%d\0%d\0%s\0" % (n, t.encode(), n, s, t.encode())
        for n, s, t in found
    )
    reports, taken = Reports(), []
    for byte in sent:
        taken += reports.take(bytes([byte]))
    assert (
        taken
        == [each for n, s, t in found for each in (Begun(n, t), Ready(n, s, t))]
        == Reports().take(sent)
    )


@given(st.binary(max_size=200))
def test_anything_else_is_refused(data: bytes) -> None:
    try:
        found = Reports().take(data)
    except ValueError:
        return
    assert not found or data.startswith((b"begin\0", b"ready\0"))


def test_an_endless_report_is_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        Reports().take(b"ready\x001\x000\0" + b"x" * 20_000)
