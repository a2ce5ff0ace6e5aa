"""The program of a code context, for the fake agent: it follows the words of a cell."""

from dataclasses import dataclass, field

from sandbox_agent.decide.code_frames import CodeFrame, CodeFrames, encode
from tests.support.fake_agent import Play, Print


@dataclass
class FakeRunner:
    """Cells are lines: `print TEXT`, `value TEXT`, `show TYPE TEXT`, `raise TEXT`, `hang`, or
    `send BYTES`.

    `hang` ends when it is interrupted, `deaf` never; `send` sends the bytes of its text.
    """

    cells: list[str] = field(default_factory=list)
    _frames: CodeFrames = field(default_factory=CodeFrames)
    _hanging: CodeFrame | None = None

    def play(self) -> Play:
        """What the fake agent does for the program's command."""
        ready = encode("ready", name="fake-1")
        return Play(stdout=ready, holds=True, fed=self._fed, signalled=self._signalled)

    def _fed(self, show: Print, data: bytes) -> None:
        for frame in self._frames.feed(data):
            self.cells.append(frame.data.decode())
            if all(self._follow(show, frame, line) for line in frame.data.decode().splitlines()):
                self._end(show, frame)

    def _follow(self, show: Print, cell: CodeFrame, line: str) -> bool:
        """Whether the cell goes on."""
        word, _, text = line.partition(" ")
        data = text.encode()
        if word == "print":
            show("stdout", encode("out", data))
        elif word == "value":
            show("stdout", encode("part", data, "text/plain") + encode("result"))
        elif word == "show":
            kind, _, value = text.partition(" ")
            show("stdout", encode("part", value.encode(), kind) + encode("result"))
        elif word == "raise":
            _raise(show, text)
        elif word == "send":
            show("stdout", text.encode().decode("unicode_escape").encode("latin-1"))
        elif word in ("hang", "deaf"):
            self._hanging = cell if word == "hang" else None
            return False
        return True

    def _signalled(self, show: Print, number: int) -> None:
        if self._hanging is not None:
            _raise(show, f"signal {number}")
            self._end(show, self._hanging)
            self._hanging = None

    def _end(self, show: Print, cell: CodeFrame) -> None:
        show("stdout", encode("end", str(len(self.cells)).encode(), cell.name))


def _raise(show: Print, text: str) -> None:
    parts = {"name": "Raised", "message": text, "traceback": f"Traceback: {text}"}
    frames = [encode("part", part.encode(), name) for name, part in parts.items()]
    show("stdout", b"".join(frames) + encode("error"))
