"""Bash: an interactive shell without a terminal, which leaves a cell at an interrupt, as people do.

The shell reads a line of this program for each cell. The line takes the cell from another pipe and
tells the exit code, with the cell's number, on a third one; cells themselves have none of them.
"""

import os
import subprocess

from sandbox_agent.code.channel import Channel

_CELLS, _ENDS, _SOURCE = 7, 8, 9
_BEGIN = f"set +H +m; unset HISTFILE PROMPT_COMMAND; PS1= PS2=; exec 2>&{_SOURCE} {_SOURCE}>&-\n"
_RUN = (
    f"IFS= read -r -d '' -u {_CELLS} __cell; . /dev/fd/{_SOURCE} {_SOURCE}<<<\"$__cell\""
    f" 0</dev/null {_ENDS}>&- {_CELLS}<&-; printf '%s %s\\0' $? %d >&{_ENDS}\n"
)
_STOP = f"printf '%s %s\\0' 130 %d >&{_ENDS}\n"
_INTERRUPTED = 130


class BashEngine:
    """Executes cells in one shell."""

    kernel = "bash"

    def __init__(self, channel: Channel) -> None:
        self.over = False
        self._channel = channel
        cells, self._cells = os.pipe()
        self._ends, ends = os.pipe()
        self._told = b""
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "--noediting", "-i"],
            env={**os.environ, "PS1": "", "PS2": ""},
            stdin=subprocess.PIPE,
            close_fds=False,
            preexec_fn=lambda: _place(cells, ends),
        )
        os.close(cells)
        os.close(ends)
        self._tell(_BEGIN)

    def run(self, code: str, count: int) -> None:
        """Executes one cell; an exit code other than 0 is an error."""
        try:
            self._tell(_RUN.replace("%d", str(count)))
            _write(self._cells, code.replace("\0", "").encode() + b"\0")
            exit_code = self._end(count)
        except KeyboardInterrupt:
            self._tell(_STOP.replace("%d", str(count)))
            exit_code = self._end(count)
        if exit_code is None:
            self.over = True
            message = f"the shell has ended with exit code {self._shell.wait()}"
            self._channel.value("error", _error("ShellEnded", message))
        elif exit_code == _INTERRUPTED:
            self._channel.value("error", _error("KeyboardInterrupt", "the cell was interrupted"))
        elif exit_code:
            message = f"the last command ended with exit code {exit_code}"
            self._channel.value("error", _error("ExitCode", message))

    def interrupt(self) -> None:
        """Has `run` ask the shell, which has got the interrupt, too, for the end of the cell."""
        raise KeyboardInterrupt

    def close(self) -> None:
        """Ends the shell."""
        self._shell.kill()
        self._shell.wait()

    def _tell(self, line: str) -> None:
        if self._shell.stdin is not None:
            _write(self._shell.stdin.fileno(), line.encode())

    def _end(self, count: int) -> int | None:
        """The exit code of the cell of that number; None if the shell has ended."""
        while True:
            told, found, rest = self._told.partition(b"\0")
            if not found:
                data = os.read(self._ends, 4096)
                if not data:
                    return None
                self._told += data
                continue
            self._told = rest
            code, _, number = told.partition(b" ")
            if number == str(count).encode():
                return int(code)


def _place(cells: int, ends: int) -> None:
    """Gives the shell its descriptors; until it has begun, it says only that it has no terminal."""
    os.dup2(cells, _CELLS)
    os.dup2(ends, _ENDS)
    os.dup2(2, _SOURCE)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _error(name: str, message: str) -> dict[str, str]:
    return {"name": name, "message": message, "traceback": f"{name}: {message}\n"}


def _write(descriptor: int, data: bytes) -> None:
    """Writes it all; a shell that has ended is found when its end is read."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except BrokenPipeError:
        return
