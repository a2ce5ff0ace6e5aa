"""Text out of a terminal's bytes, without escape sequences, however they are cut. Pure."""

import codecs
import re
from enum import Enum, auto

# What a cleaned text has besides printable characters. Erasing is the one thing of the escape
# sequences that says what a line reads; their codes are control characters that are dropped
# where a program sends them.
NEWLINE, RETURN, BACKSPACE = "\n", "\r", "\b"
ERASE_TO_END, ERASE_LINE = "\x0b", "\x0c"

_ESCAPE = "\x1b"
_KEPT_CONTROLS = "\t\n\r\b"
_TEXT = re.compile(r"[^\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]+")
_PARAMETERS = re.compile(r"[\x20-\x3f]+")
_STRING = re.compile(r"[^\x07\x18\x1a\x1b\x9c\udc9c]+")
_CSI = 0x9B
# Device control, start of string, system command, privacy message, application command.
_STRINGS = frozenset({0x90, 0x98, 0x9D, 0x9E, 0x9F})
_STRING_OPENERS = "PX]^_"
_CANCEL = "\x18\x1a"
_REPLACEMENT = "\ufffd"
# Of a sequence's parameters only short ones mean anything here.
_MOST_PARAMETERS = 16


class _State(Enum):
    GROUND = auto()
    ESCAPE = auto()  # after ESC
    INTERMEDIATE = auto()  # ESC with a character set or the like, before its last byte
    CSI = auto()  # in a control sequence
    STRING = auto()  # in a string that is for the terminal, as its title
    STRING_ESCAPE = auto()  # after an ESC in such a string


class Cleaner:
    """An incremental decoder: the same bytes give the same text, whatever their pieces.

    UTF-8 that is broken becomes U+FFFD, one for each lost character. A byte 0x9B that is no
    part of a character begins a control sequence, as ESC [ does.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._state = _State.GROUND
        self._parameters = ""
        # Bytes that a broken character may still have.
        self._continuing = 0

    def feed(self, data: bytes) -> str:
        """The text that `data` adds."""
        text = self._decoder.decode(data)
        out: list[str] = []
        position = 0
        while position < len(text):
            position = self._step(text, position, out)
        return "".join(out)

    def _step(self, text: str, position: int, out: list[str]) -> int:
        """Takes up one piece; returns where the next begins."""
        if self._state is _State.GROUND:
            found = _TEXT.match(text, position)
            if found:
                self._continuing = 0
                out.append(found[0])
                return found.end()
            self._control(text[position], out)
            return position + 1
        if self._state is _State.STRING:
            found = _STRING.match(text, position)
            if found:
                return found.end()
            self._end_string(text[position])
            return position + 1
        if self._state is _State.CSI:
            found = _PARAMETERS.match(text, position)
            if found:
                self._parameters = (self._parameters + found[0])[:_MOST_PARAMETERS]
                return found.end()
        return position + self._in_sequence(text[position], out)

    def _control(self, character: str, out: list[str]) -> None:
        """A character that is not plain text, outside of any sequence."""
        code = _byte(character)
        if 0xDC80 <= ord(character) <= 0xDCFF and self._is_broken(code, out):
            return
        self._continuing = 0
        if character == _ESCAPE:
            self._state = _State.ESCAPE
        elif code == _CSI:
            self._open_csi()
        elif code in _STRINGS:
            self._state = _State.STRING
        # Everything else has no meaning for what a line reads.

    def _is_broken(self, code: int, out: list[str]) -> bool:
        """Whether a stray byte is of a character that got lost, which then is replaced."""
        if self._continuing and code < 0xC0:
            self._continuing -= 1
            return True
        if code < 0xA0:
            return False
        out.append(_REPLACEMENT)
        self._continuing = 0 if code < 0xC2 else 1 if code < 0xE0 else 2 if code < 0xF0 else 3
        return True

    def _open_csi(self) -> None:
        self._state, self._parameters = _State.CSI, ""

    def _end_string(self, character: str) -> None:
        if character == _ESCAPE:
            self._state = _State.STRING_ESCAPE
        else:  # BEL, the 8-bit terminator, or cancelled
            self._state = _State.GROUND

    def _in_sequence(self, character: str, out: list[str]) -> int:
        """One character after ESC or of a control sequence; 0 when it is none of it."""
        if character == _ESCAPE:
            self._state = _State.ESCAPE
        elif character in _CANCEL:
            self._state = _State.GROUND
        elif self._state is _State.STRING_ESCAPE:
            self._state = _State.GROUND if character == "\\" else _State.ESCAPE
            return 1 if character == "\\" else 0
        elif character < " ":
            # Terminals carry out control characters in the middle of a sequence.
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


def _byte(character: str) -> int:
    """The code of a character, or of the stray byte that it stands for."""
    code = ord(character)
    return code - 0xDC00 if 0xDC80 <= code <= 0xDCFF else code
