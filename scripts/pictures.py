"""Makes docs/images/*.svg from real runs against the control plane that the settings name.

Start a control plane first, then run `python -m scripts.pictures`.
"""

import io
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
SECONDS = 60
_WIDTH = 124
# The earlier content of a line that was redrawn.
_REDRAWN = re.compile(r"[^\n]*\n?\r(?:\x1b\[1A)?\x1b\[2K")
_CURSOR = re.compile(r"\x1b\[\?25[lh]")
# A picture must not fetch anything.
_FONT_FACE = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
_COLOURS = [(235, 107, 111), (127, 201, 127), (229, 192, 123), (97, 175, 239), (198, 120, 221)]
_CYAN = (86, 182, 194)
_THEME = TerminalTheme(
    (22, 24, 29),
    (214, 217, 222),
    [(46, 50, 58), *_COLOURS, _CYAN, (214, 217, 222)],
    [(92, 99, 112), *_COLOURS, _CYAN, (255, 255, 255)],
)
_RUNS = (
    ("paddock run --upload examples -- grep -rn 'async def main' .", None),
    ("paddock run --level low -- cat /etc/passwd", 4),
    ("paddock run --level low -- curl https://example.com", 4),
    ("paddock run --level high -- sh -c 'id -u; nproc; touch /etc/motd; exit 7'", 7),
)


class Recording:
    """Runs `paddock …` on its own terminal and keeps the output."""

    def __init__(self, command: str) -> None:
        words = [sys.executable, "-m", "paddock", *shlex.split(command)[1:]]
        ours, theirs = pty.openpty()
        environment = {**os.environ, "COLUMNS": str(_WIDTH), "TERM": "xterm-256color"}
        self._process = subprocess.Popen(
            words, cwd=ROOT, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        self._output = open(ours, "rb", buffering=0)  # noqa: SIM115 - closed in `end`

    def read_until(self, text: bytes, times: int = 1) -> str:
        """Output until `text` has occurred `times` times. Raises: OSError if the output ends."""
        seen = b""
        while seen.count(text) < times:
            seen += self._output.read(65_536)
        return seen.decode(errors="replace")

    def end(self, number: int | None = None) -> tuple[str, int]:
        """The rest of the output and the exit status; `number` is a signal to send first."""
        if number is not None:
            self._process.send_signal(number)
        seen = b""
        try:
            while piece := self._output.read(65_536):
                seen += piece
        except OSError:  # Linux reports this when no process has the other side open any more
            pass
        self._output.close()
        return seen.decode(errors="replace"), self._process.wait(SECONDS)


def main() -> int:
    """Records and draws one run of each kind."""
    IMAGES.mkdir(exist_ok=True)
    watching = Recording("paddock events -f")
    seen = watching.read_until(b"Ctrl-C")
    shown = ""
    for command, status in _RUNS:
        output, ended = Recording(command).end()
        if ended != (status or 0):
            print(f"{command}: exit {ended}\n{output}", file=sys.stderr)
            return 1
        shown += f"{_prompt(command)}{output}"
        if status is not None and status != 4:
            shown += f"{_prompt('echo $?')}{status}\n"
    seen += watching.read_until(b"session.terminated", len(_RUNS))
    seen += watching.end(signal.SIGINT)[0]
    _draw("run", shown)
    _draw("events", _prompt("paddock events -f") + seen)
    return 0


def _prompt(command: str) -> str:
    return f"\x1b[1;32m$\x1b[0m \x1b[1m{command}\x1b[0m\n"


def _draw(name: str, output: str) -> None:
    text = _CURSOR.sub("", output.replace("\r\n", "\n").replace("^C", ""))
    text = _REDRAWN.sub("", text)
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True)
    for line in text.rstrip().split("\n"):
        console.print(Text.from_ansi(line), soft_wrap=False, overflow="fold")
    svg = console.export_svg(title="paddock", theme=_THEME, unique_id=name)
    path = IMAGES / f"{name}.svg"
    path.write_text(_FONT_FACE.sub("", svg), encoding="utf-8")
    print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
