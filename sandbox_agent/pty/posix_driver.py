r"""What a POSIX shell is told in a kept shell, where the image has no bash. Pure.

The shell is interactive, and its standard input is the socket: it reads a line, does what it says,
and reads the next one, also after an interrupt or an error has ended a line. For each command it
gets two lines. The first one checks the syntax with a second shell, reports that the command
begins, and evaluates it with the terminal as input, so that neither the command nor what it starts
has the socket. The second one is sent when the command has begun, and once more after each
interrupt, and reports how the command has ended. The reports are those of `shell_driver`.

A line is not read before the one before it has ended. So the report is true whatever ends a
command, and all that an interrupt can make the shell forget is the report, which is sent again.
"""

from sandbox_agent.pty.shell_driver import MOST_ERROR

# No prompts, and no file of the workspace that says what commands mean.
VARIABLES = {"PS1": "", "PS2": "", "ENV": ""}
# The shell begins without an output, because some print a greeting.
_BEGIN = rf"""
exec >&2
PS1= PS2= __paddock_status= __paddock_run=0
__paddock_check() {{
  __paddock_error=$(command printf '%s\n' "$__paddock_text" | /bin/sh -n 2>&1) && __paddock_error=
  __paddock_error=$(command printf %.{MOST_ERROR}s "$__paddock_error")
  command printf 'begin\0%s\0\0%s\0' "$__paddock_run" "$__paddock_error" >&0
  [ -z "$__paddock_error" ] || __paddock_text=
  case $- in *e*) return 0 ;; esac
  return "$1"
}}
__paddock_end() {{
  command printf 'ready\0%s\0%s\0%s\0' "$__paddock_run" "${{__paddock_status:-$1}}" "$PWD" >&0
  PS1= PS2=
  case $- in *e*) return 0 ;; esac
  return "${{__paddock_status:-$1}}"
}}
""".lstrip("\n")
_END = "{ __paddock_end $?; } 2>/dev/null\n"


def begin() -> bytes:
    """What a new shell is told; it then reports the end of its run 0."""
    return (_BEGIN + _END).encode()


def run(number: int, text: str) -> bytes:
    """What has the shell run a text, which must not contain NUL."""
    quoted = text.replace("'", r"'\''")
    return (
        f"{{ __paddock_last=$? __paddock_status= __paddock_run={number} __paddock_text='{quoted}'; "
        "__paddock_check $__paddock_last; } 2>/dev/null; "
        'eval "$__paddock_text" </dev/tty; '
        "{ __paddock_status=$? PS1= PS2=; } 2>/dev/null\n"
    ).encode()


def end() -> bytes:
    """What has the shell report the end of the run."""
    return _END.encode()
