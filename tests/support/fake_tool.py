"""An interactive tool that follows orders, line by line: `say hello`, `big 4000000`, `hang`.

It runs as the program of a terminal, with only the kernel's line editing.
"""

import os
import select
import signal
import sys
import termios
import threading
import time

PROMPT = "tool=> "
LINE = b"0123456789abcdef" * 4 + b"\n"


def write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def echo(on: bool) -> None:
    members = termios.tcgetattr(0)
    members[3] = members[3] | termios.ECHO if on else members[3] & ~termios.ECHO
    termios.tcsetattr(0, termios.TCSANOW, members)


def wait_by_select() -> bytes:
    nothing, _ = os.pipe()
    select.select([nothing, 0], [], [])
    return os.read(0, 4096)


def wait_by_poll() -> bytes:
    poll = select.poll()
    poll.register(os.pipe()[0], select.POLLIN)
    poll.register(0, select.POLLIN)
    poll.poll()
    return os.read(0, 4096)


def wait_by_epoll() -> bytes:
    epoll = select.epoll()
    epoll.register(os.pipe()[0], select.EPOLLIN)
    epoll.register(0, select.EPOLLIN)
    epoll.poll()
    return os.read(0, 4096)


def wait_in_thread() -> bytes:
    told: list[bytes] = []
    reader = threading.Thread(target=lambda: told.append(os.read(0, 4096)))
    reader.start()
    reader.join()
    return told[0]


def wait_in_child() -> bytes:
    reads, writes = os.pipe()
    if os.fork() == 0:
        os.write(writes, os.read(0, 4096))
        os._exit(0)
    os.wait()
    return os.read(reads, 4096)


def wait_on_controlling_terminal() -> bytes:
    return os.read(os.open("/dev/tty", os.O_RDONLY), 4096)


def wait_for_other() -> bytes:
    """Waits, but for something that never comes, not for input."""
    poll = select.poll()
    poll.register(os.pipe()[0], select.POLLIN)
    poll.register(0, 0)
    poll.poll()
    return b""


WAITS = {
    "select": wait_by_select,
    "poll": wait_by_poll,
    "epoll": wait_by_epoll,
    "thread": wait_in_thread,
    "child": wait_in_child,
    "terminal": wait_on_controlling_terminal,
    "other": wait_for_other,
}


class Tool:
    def __init__(self) -> None:
        self.prompt = PROMPT

    def run(self, arguments: list[str]) -> None:
        if "--deaf" in arguments:
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
        if "--daemon" in arguments and os.fork() == 0:
            os.setsid()
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            time.sleep(1000)
        if "--executes" in arguments and os.fork() == 0:
            while True:
                os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
        if "--never" in arguments:
            write(b"starting, for ever\n")
            time.sleep(1000)
        if "--die" in arguments:
            write(b"no such database\n")
            sys.exit(3)
        write(b"fake tool 1.0\n")
        self.show()
        for line in sys.stdin:
            name, _, rest = line.rstrip("\n").partition(" ")
            getattr(self, "do_" + name)(rest)

    def show(self) -> None:
        write(self.prompt.encode())

    def do_say(self, text: str) -> None:
        write(text.encode() + b"\n")
        self.show()

    def do_nothing(self, _: str) -> None:
        self.show()

    def do_prompt(self, text: str) -> None:
        self.prompt = text + " "
        self.show()

    def do_hex(self, pieces: str) -> None:
        """Prints raw bytes, piece by piece."""
        for piece in pieces.split():
            write(bytes.fromhex(piece))
            time.sleep(0.002)

    def do_big(self, size: str) -> None:
        write((LINE * (int(size) // len(LINE) + 1))[: int(size) - 1] + b"\n")
        self.show()

    def do_late(self, text: str) -> None:
        """Is at its prompt; on a signal it prints something more, with another prompt."""
        said = text.encode() + b"\n" + self.prompt.encode()
        signal.signal(signal.SIGUSR1, lambda *_: write(said))
        self.show()

    def do_notice(self, text: str) -> None:
        """Is at its prompt; on a signal it prints something more, without another prompt."""
        signal.signal(signal.SIGUSR1, lambda *_: write(text.encode() + b"\n"))
        self.show()

    def do_spoof(self, seconds: str) -> None:
        """Prints a fake prompt and sleeps; then prints its answer.

        Without a number of seconds it sleeps until it gets a signal.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        write(self.prompt.encode())
        if seconds:
            time.sleep(float(seconds))
        else:
            signal.sigwait({signal.SIGUSR1})
        write(b"was not the prompt\n")
        self.show()

    def do_nested(self, _: str) -> None:
        """Starts another program, which reads while the tool's prompt is shown."""
        import subprocess  # low does not have it

        self.show()
        subprocess.run(["/usr/bin/head", "-n", "1"], check=False)
        self.show()

    def do_wait_for(self, how: str) -> None:
        """Waits for its next line in another way, and returns it."""
        self.show()
        line = WAITS[how]()
        write(b"after " + how.encode() + b": " + line)
        self.show()

    def do_hide(self, _: str) -> None:
        """Makes itself unreadable, but still waits for input."""
        import ctypes  # low does not have it

        prctl = ctypes.CDLL(None).prctl
        prctl(4, 0, 0, 0, 0)
        self.show()

    def do_slow(self, seconds: str) -> None:
        time.sleep(float(seconds))
        write(b"at last\n")
        self.show()

    def do_pause(self, seconds: str) -> None:
        """Prints part of its answer, and the rest after a while."""
        write(b"first\n")
        time.sleep(float(seconds))
        write(b"second\n")
        self.show()

    def do_busy(self, seconds: str) -> None:
        """Computes after printing part of a fake prompt."""
        write(self.prompt.encode())
        end = time.monotonic() + float(seconds)
        while time.monotonic() < end:
            pass
        write(b"was not the prompt\n")
        self.show()

    def do_join(self, text: str) -> None:
        """Output without a newline before the prompt."""
        write(text.encode())
        self.show()

    def do_inside(self, _: str) -> None:
        """Prompts within the output."""
        for _number in range(3):
            write(self.prompt.encode() + b"\n")
            time.sleep(0.02)
        write(b"real\n")
        self.show()

    def do_echo(self, how: str) -> None:
        echo(how == "on")
        self.show()

    def do_environment(self, name: str) -> None:
        size = os.get_terminal_size(0)
        known = {"size": f"{size.lines}x{size.columns}", "tty": str(os.isatty(0))}
        known["leader"] = str(os.getpgrp() == os.getpid() == os.getsid(0))
        self.do_say(known.get(name) or os.environ.get(name, "unset"))

    def do_read(self, path: str) -> None:
        """Whether a file can be read."""
        try:
            with open(path, "rb"):
                self.do_say("yes")
        except OSError as error:
            self.do_say(str(error.strerror))

    def do_execute(self, program: str) -> None:
        """Whether a program can be executed."""
        try:
            os.waitpid(os.posix_spawn(program, [program], {}), 0)
        except OSError as error:
            self.do_say(str(error.strerror))
        else:
            self.do_say("yes")

    def do_hang(self, _: str) -> None:
        time.sleep(1000)

    def do_spin(self, _: str) -> None:
        while True:
            pass

    def do_flood(self, _: str) -> None:
        while True:
            write(LINE)

    def do_exit(self, code: str) -> None:
        write(b"bye\n")
        sys.exit(int(code))

    def do_kill(self, number: str) -> None:
        os.kill(os.getpid(), int(number))


if __name__ == "__main__":
    Tool().run(sys.argv[1:])
