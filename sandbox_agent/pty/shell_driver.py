"""The loop that bash runs in a kept shell, and the messages between it and the agent. Pure.

The shell is interactive: an interrupt ends the command and leaves the shell. Before each prompt,
bash runs `PROMPT_COMMAND`; the loop begins there, and begins there again after an interrupt. It
receives a command over a socket, has a second bash check its syntax, runs it with `eval` and
reports how it ended. While the command runs, the socket is closed for it and for all that it
starts, so nothing that a program prints or opens can be a report.

    agent → shell   NUL NUL number NUL text NUL  run this
    shell → agent   "ready" NUL number NUL status NUL directory NUL
                    "begin" NUL number NUL NUL message NUL    message: the error of the syntax

A number is random and names one run. `ready` has the number of the run that has ended. If an
interrupt that comes late costs the first NUL of a message, the second one takes its place.
"""

from typing import NamedTuple

from sandbox_agent.decide.files.names import shown
from sandbox_agent.enforce.command_process import CONTROL_FD

# The exit code of a text that is no command, as bash has it.
SYNTAX_STATUS = 2
# How the shell ends when it has lost its socket.
_LOST_STATUS = 70
MOST_ERROR = 4000
# The largest part of a report: a path, or a message, which is cut.
_MOST_PART_BYTES = 16 * 1024
_PARTS = 4

# One command. What this does for itself prints nothing, but for the `eval` where a command has set
# `-x`. A command that closes all copies of the socket ends the shell.
_STEP = rf"""
{{
  __paddock_run=
  until [[ -n $__paddock_run ]]; do
    IFS= builtin read -r -d '' -u {CONTROL_FD} __paddock_run || builtin exit {_LOST_STATUS}
  done
  IFS= builtin read -r -d '' -u {CONTROL_FD} __paddock_text || builtin exit {_LOST_STATUS}
  __paddock_option=+O
  builtin shopt -q extglob && __paddock_option=-O
  __paddock_error=$("$BASH" --norc -n $__paddock_option extglob \
    <<<"$__paddock_text" 2>&1 {CONTROL_FD}>&-) && __paddock_error=
  builtin printf 'begin\0%s\0\0%s\0' "$__paddock_run" "${{__paddock_error:0:{MOST_ERROR}}}" \
    >&{CONTROL_FD}
  [[ -n $__paddock_error ]] && __paddock_text=
  # Start-up files of tools may have set it.
  PROMPT_COMMAND='builtin eval "$__paddock_loop"'
  [[ $- == *e* ]] || __paddock_again "$__paddock_status"
}} 2>/dev/null
builtin eval "$__paddock_text" {CONTROL_FD}>&-
{{
  __paddock_status=$?
  builtin printf 'ready\0%s\0%s\0%s\0' "$__paddock_run" "$__paddock_status" "$PWD" \
    >&{CONTROL_FD} || builtin exit {_LOST_STATUS}
}} 2>/dev/null
"""
# `mapfile` is the loop: `break` in a command can't leave it, and no function makes a command's
# variables local. It gets an empty line for each command, and adds it and its number to the step,
# where they are a comment.
_LOOP = rf"""
{{
  __paddock_status=$?
  builtin printf 'ready\0%s\0%s\0%s\0' "$__paddock_run" "$__paddock_status" "$PWD" \
    >&{CONTROL_FD} || builtin exit {_LOST_STATUS}
}} 2>/dev/null
builtin mapfile -u {CONTROL_FD} -d '' -c 1 -C "$__paddock_step#" __paddock_lines
builtin exit {_LOST_STATUS}
"""
_BEGIN = """
builtin export -n PROMPT_COMMAND __paddock_loop __paddock_step
PROMPT_COMMAND='builtin eval "$__paddock_loop"' PS1= PS2= __paddock_run=0
__paddock_again() { return "$1"; }
builtin eval "$__paddock_loop"
"""
VARIABLES = {"PROMPT_COMMAND": _BEGIN, "__paddock_loop": _LOOP, "__paddock_step": _STEP}


def begin() -> bytes:
    """What a new shell is told: nothing, for its variables say it."""
    return b""


def end() -> bytes:
    """What has the shell report the end of a run: nothing, for it does so by itself."""
    return b""


def run(number: int, text: str) -> bytes:
    """The message that has the shell run a text, which must not contain NUL."""
    return b"\0\0%d\0%s\0" % (number, text.encode())


class Begun(NamedTuple):
    """The run with that number begins; with an error of its syntax, nothing of it runs."""

    number: int
    syntax_error: str


class Ready(NamedTuple):
    """The run with that number has ended; the shell waits for the next one in that directory.

    Its name is in the form of lists of files.
    """

    number: int
    status: int
    directory: str


class Reports:
    """Splits what the shell says into its reports."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, data: bytes) -> list[Begun | Ready]:
        """The reports that are complete with this data. Raises: ValueError if one is malformed."""
        *parts, self._rest = (self._rest + data).split(b"\0")
        whole = len(parts) // _PARTS * _PARTS
        if len(self._rest) > _MOST_PART_BYTES:
            raise ValueError("too long")
        found = [_report(*parts[start : start + _PARTS]) for start in range(0, whole, _PARTS)]
        self._rest = b"\0".join([*parts[whole:], self._rest])
        return found


def _report(kind: bytes, number: bytes, status: bytes, text: bytes) -> Begun | Ready:
    if kind == b"begin":
        return Begun(_number(number), text.decode("utf-8", "replace"))
    if kind == b"ready":
        directory = shown(text.decode("utf-8", "surrogateescape"))
        return Ready(_number(number), _number(status), directory)
    raise ValueError("not a report")


def _number(digits: bytes) -> int:
    if not (digits.isdigit() and len(digits) <= 18):
        raise ValueError("not a number")
    return int(digits)
