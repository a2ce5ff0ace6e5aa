"""What a POSIX shell is told in a kept shell: dash, and busybox where the host has it."""

import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox_agent.pty import device, posix_driver
from sandbox_agent.pty.shell_driver import Begun, Ready, Reports
from tests.support.limits import WAIT_SECONDS

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=200)
# Each with the words that begin it.
SHELLS = {"dash": ["dash", "-i"], "busybox": ["busybox", "sh", "-i"]}
# A busy machine may not have come to the command when it is interrupted first.
MOST_INTERRUPTS = 30


class Sh:
    """A kept shell, as a guard starts it."""

    def __init__(self, argv: list[str], directory: Path) -> None:
        self._socket, theirs = socket.socketpair()
        self.master, slave = device.open_pair(24, 80)
        device.make_plain(slave)

        def become() -> None:
            # Dash goes on ignoring what was ignored before it, as in what nohup runs.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.setsid()
            os.close(os.open(os.ttyname(1), os.O_RDWR))  # becomes the controlling terminal

        self.process = subprocess.Popen(
            ["/bin/sh", "-c", f"exec {shlex.join(argv)} >/dev/null"],
            env={"PATH": os.environ["PATH"], "TERM": "dumb", **posix_driver.VARIABLES},
            cwd=directory,
            stdin=theirs.fileno(),
            stdout=slave,
            stderr=slave,
            preexec_fn=become,
        )
        theirs.close()
        os.close(slave)
        self._reports, self._number = Reports(), 0
        self._socket.sendall(posix_driver.begin())
        self.until_ready()

    def run(self, text: str) -> tuple[str, int, str]:
        """What a command prints, how it ends, and the error of its syntax."""
        self.start(text)
        begun, ready = self.until_ready()
        assert begun is not None
        return self.printed(), ready.status, begun.syntax_error

    def start(self, text: str) -> None:
        self._number += 1
        self._socket.sendall(posix_driver.run(self._number, text))

    def until_ready(self) -> tuple[Begun | None, Ready]:
        begun = None
        while True:
            for report in self._taken():
                if isinstance(report, Ready):
                    return begun, report
                begun = report
                self._socket.sendall(posix_driver.end())

    def until_begun(self) -> None:
        while not any(isinstance(report, Begun) for report in self._taken()):
            pass
        self._socket.sendall(posix_driver.end())

    def _taken(self) -> list[Begun | Ready]:
        """The next reports of the present run: the end of an earlier one may be told again."""
        readable, _, _ = select.select([self._socket], [], [], WAIT_SECONDS)
        assert readable, "the shell does not report"
        data = self._socket.recv(65536)
        assert data, "the shell has ended"
        return [each for each in self._reports.take(data) if each.number == self._number]

    def interrupt(self) -> Ready:
        """Interrupts it until it reports: it may lose one while it starts a program."""
        for _ in range(MOST_INTERRUPTS):
            device.interrupt(self.master)
            self._socket.sendall(posix_driver.end())
            if select.select([self._socket], [], [], 2)[0]:
                return self.until_ready()[1]
        pytest.fail("the command is not interrupted")

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


@pytest.fixture(scope="module", params=[name for name in SHELLS if shutil.which(name)])
def sh(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sh]:
    made = Sh(SHELLS[request.param], tmp_path_factory.mktemp("shell"))
    yield made
    made.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(TEXTS, st.integers(0, 255))
def test_any_text_arrives(sh: Sh, text: str, code: int) -> None:
    command = f"printf %s {shlex.quote(text)}\n(exit {code})"
    assert sh.run(command) == (text, code, "")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(TEXTS)
def test_what_is_quoted_and_never_closed_runs_nothing(sh: Sh, text: str) -> None:
    printed, _, error = sh.run(f"echo ran; : {shlex.quote(text)}'")
    assert printed == ""
    assert "nterminated quoted string" in error


def test_state_stays(sh: Sh) -> None:
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


def test_no_program_has_the_socket(sh: Sh) -> None:
    found = sh.run("ls -l /proc/self/fd; (ls -l /proc/self/fd)")
    assert "socket:" not in found[0]
    assert sh.run("readlink /proc/self/fd/0")[0] == "/dev/tty\n"


@pytest.mark.parametrize(
    "command", ["while :; do :; done", "sleep 1000", "cat", "for i in 1 2; do sleep 1000; done"]
)
def test_an_interrupt_ends_the_command_only(sh: Sh, command: str) -> None:
    sh.start(f"kept=1; echo up; {command}; echo no")
    sh.until_begun()
    sh.until_printed("up\n")
    assert sh.interrupt().status == 130
    assert "no" not in sh.printed()
    # On a busy machine it was interrupted twice, and the second one comes late.
    while (found := sh.run("echo $kept"))[1] == 130:
        pass
    assert found[0].endswith("1\n")
