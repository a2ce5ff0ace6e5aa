"""A terminal's bytes as lines of text, on a screen of unlimited width. Pure.

A carriage return moves to the line's start, and the characters that follow overwrite those there. A
backspace moves back by one; a newline ends the line with all of its characters. So `\r\n` and
`\r\r\n` are newlines, and a progress bar keeps its last state. Cursor movements are not followed,
because programs with `TERM=dumb` do not use them.
"""

import codecs
import re
from enum import Enum, auto

# The characters of cleaned text besides printable ones. Of the escape sequences, only erasing
# affects a line's content. Programs' own control characters with these codes are dropped.
NEWLINE, RETURN, BACKSPACE = "\n", "\r", "\b"
ERASE_TO_END, ERASE_LINE = "\x0b", "\x0c"

_ESCAPE = "\x1b"
_KEPT_CONTROLS = "\t\n\r\b"
_TEXT = re.compile(r"[^\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]+")
_PARAMETERS = re.compile(r"[\x20-\x3f]+")
_STRING = re.compile(r"[^\n\x07\x18\x1a\x1b\x9c]+")
_CSI = "\x9b"
# Device control, start of string, system command, privacy message, application command.
_STRINGS = "\x90\x98\x9d\x9e\x9f"
_STRING_OPENERS = "PX]^_"
_CANCEL = "\x18\x1a"
# Only short parameters of a sequence have a meaning here.
_MOST_PARAMETERS = 16


class _State(Enum):
    GROUND = auto()
    ESCAPE = auto()  # after ESC
    INTERMEDIATE = auto()  # ESC with a character set or the like, before its last byte
    CSI = auto()  # in a control sequence
    STRING = auto()  # in a string for the terminal, such as its title
    STRING_ESCAPE = auto()  # after an ESC in such a string


class Cleaner:
    """An incremental decoder: the same bytes give the same text, however they are split.

    UTF-8 is decoded first. Invalid bytes become U+FFFD, so no byte of a split character is taken
    for a control. A string for the terminal ends at the latest with its line, so an unterminated
    one swallows no more than that.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._state = _State.GROUND
        self._parameters = ""

    def feed(self, data: bytes) -> str:
        """The text that `data` adds."""
        text = self._decoder.decode(data)
        out: list[str] = []
        position = 0
        while position < len(text):
            position = self._step(text, position, out)
        return "".join(out)

    def _step(self, text: str, position: int, out: list[str]) -> int:
        """Processes one piece; returns where the next begins."""
        if self._state is _State.GROUND:
            found = _TEXT.match(text, position)
            if found:
                out.append(found[0])
                return found.end()
            self._control(text[position])
            return position + 1
        if self._state is _State.STRING:
            found = _STRING.match(text, position)
            if found:
                return found.end()
            return position + self._end_string(text[position])
        if self._state is _State.CSI:
            found = _PARAMETERS.match(text, position)
            if found:
                self._parameters = (self._parameters + found[0])[:_MOST_PARAMETERS]
                return found.end()
        return position + self._in_sequence(text[position], out)

    def _control(self, character: str) -> None:
        """Handles a character that is not plain text, outside any sequence."""
        if character == _ESCAPE:
            self._state = _State.ESCAPE
        elif character == _CSI:
            self._open_csi()
        elif character in _STRINGS:
            self._state = _State.STRING
        # All others have no effect on a line's content.

    def _open_csi(self) -> None:
        self._state, self._parameters = _State.CSI, ""

    def _end_string(self, character: str) -> bool:
        """Whether the character ends the string without being part of it, as a newline does."""
        if character == _ESCAPE:
            self._state = _State.STRING_ESCAPE
        else:  # BEL, the 8-bit terminator, cancelled, or the end of the line
            self._state = _State.GROUND
        return character != NEWLINE

    def _in_sequence(self, character: str, out: list[str]) -> int:
        """Handles a character after ESC or in a control sequence; 0 if it is not part of it."""
        if character == _ESCAPE:
            self._state = _State.ESCAPE
        elif character in _CANCEL:
            self._state = _State.GROUND
        elif self._state is _State.STRING_ESCAPE:
            self._state = _State.GROUND if character == "\\" else _State.ESCAPE
            return 1 if character == "\\" else 0
        elif character < " ":
            # Terminals execute control characters in the middle of a sequence.
            if character in _KEPT_CONTROLS:
                out.append(character)
        elif character > "~":
            self._state = _State.GROUND
            return 0
        elif self._state is _State.CSI:
            self._end_csi(character, out)
        else:
            self._after_escape(character)
        return 1

    def _end_csi(self, final: str, out: list[str]) -> None:
        if final == "K" and self._parameters in ("", "0"):
            out.append(ERASE_TO_END)
        elif final == "K" and self._parameters == "2":
            out.append(ERASE_LINE)
        self._state = _State.GROUND

    def _after_escape(self, character: str) -> None:
        if character < "0":
            self._state = _State.INTERMEDIATE
        elif self._state is _State.INTERMEDIATE:
            self._state = _State.GROUND
        elif character == "[":
            self._open_csi()
        elif character in _STRING_OPENERS:
            self._state = _State.STRING
        else:
            self._state = _State.GROUND


_PIECE = re.compile(r"[\n\r\x08\x0b\x0c]|[^\n\r\x08\x0b\x0c]+")


class Screen:
    """Converts bytes to complete lines; at most `limit` characters of a line are kept."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._cleaner = Cleaner()
        self._line: list[str] = []
        self._column = 0

    @property
    def line(self) -> str:
        """The last, incomplete line."""
        return "".join(self._line)

    @property
    def length(self) -> int:
        """Its number of characters."""
        return len(self._line)

    def feed(self, data: bytes) -> list[str]:
        """The lines that `data` completes."""
        ended: list[str] = []
        for found in _PIECE.finditer(self._cleaner.feed(data).replace("\r\n", "\n")):
            piece = found[0]
            if piece == NEWLINE:
                ended.append(self.line)
                self._line.clear()
                self._column = 0
            elif piece == RETURN:
                self._column = 0
            elif piece == BACKSPACE:
                self._column = max(0, self._column - 1)
            elif piece == ERASE_TO_END:
                del self._line[self._column :]
            elif piece == ERASE_LINE:
                self._line[:] = " " * self._column
            else:
                self._write(piece)
        return ended

    def _write(self, run: str) -> None:
        run = run[: self._limit - self._column]
        end = self._column + len(run)
        self._line[self._column : end] = run
        self._column = end
