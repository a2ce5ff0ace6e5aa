"""Unified diffs, as `git diff` or `diff -u` prints them: read into files and hunks. Pure.

Work and memory are linear in the patch, up to stated bounds.
"""

import posixpath
import re
from typing import NamedTuple

from sandbox_agent.decide.files import names
from sandbox_agent.decide.files.hunks import Hunk

MOST_PATCH_BYTES = 1024 * 1024
MOST_FILES = 1000
MOST_HUNKS = 10_000
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@", re.ASCII)
_NOTHING = "/dev/null"
# Of a name with its quotes, in which a byte may take four characters, and what follows it.
_LONGEST_NAME = 20_000
_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\([0-3][0-7]{2}|.)", re.DOTALL)
_NO_NEWLINE = "\\"


class PatchError(ValueError):
    """A text that is not a patch; the message names the line."""


class FilePatch(NamedTuple):
    """What a patch does to one file; `old` is None for a new one, `new` for one that is removed.

    `mode` has the nine permission bits that the file gets; None: it keeps its own. `copies`: the
    old file stays.
    """

    old: str | None
    new: str | None
    hunks: tuple[Hunk, ...] = ()
    mode: int | None = None
    copies: bool = False

    @property
    def path(self) -> str:
        """The name in reports: the new one, or that of the removed file."""
        return self.new or self.old or ""


def parse(text: str) -> list[FilePatch]:
    """The files of a patch. Text before, between and after them is skipped, as `patch` does.

    The prefixes `a/` and `b/` are removed from names that have both. Raises: PatchError.
    """
    found = _Reader(text).files()
    if not found:
        raise PatchError("it has no file: each begins with lines `--- OLD` and `+++ NEW`")
    return found


def target(base: str, name: str) -> str:
    """The path of a patch's file below the directory in which the patch is applied."""
    return name if base in ("", ".") or name.startswith("/") else posixpath.join(base, name)


class _Header:
    """The lines before the hunks of a file, as they are read."""

    def __init__(self, names: tuple[str, str] | None) -> None:
        # The names of a `diff --git` line, for files that have no others.
        self._names = names
        self.old: str | None = None
        self.new: str | None = None
        self.mode: int | None = None
        self.copies = self.makes = self.removes = self.renames = False

    def finished(self, hunks: list[Hunk], named: bool) -> FilePatch | None:
        """The file; None if the header says nothing of it."""
        if not named and self._names is not None and not self.renames:
            self.old, self.new = self._names
        if self.makes:
            self.old = None
        if self.removes:
            self.new = None
        said = named or self.renames or self.makes or self.removes or self.mode is not None
        if not said or (self.old is None and self.new is None):
            return None
        return FilePatch(self.old, self.new, tuple(hunks), self.mode, self.copies)


class _Reader:
    """Reads a patch line by line."""

    def __init__(self, text: str) -> None:
        """Raises: PatchError."""
        if len(text.encode("utf-8", "surrogateescape")) > MOST_PATCH_BYTES:
            raise PatchError(f"it has more than {MOST_PATCH_BYTES} bytes")
        self._lines = text.split("\n")
        if self._lines and not self._lines[-1]:
            self._lines.pop()
        self._at = 0
        self._hunks = 0

    def files(self) -> list[FilePatch]:
        """All of them. Raises: PatchError."""
        found: list[FilePatch] = []
        while self._at < len(self._lines):
            if self._line().startswith("diff --git "):
                each = self._git()
            elif self._names_follow():
                each = self._file(_Header(None))
            else:
                if _HUNK.match(self._line()):
                    raise self._wrong("a hunk without the lines `--- OLD` and `+++ NEW` before it")
                self._at += 1
                continue
            if each is not None:
                found.append(each)
            if len(found) > MOST_FILES:
                raise self._wrong(f"more than {MOST_FILES} files")
        return found

    def _line(self) -> str:
        return self._lines[self._at] if self._at < len(self._lines) else ""

    def _wrong(self, reason: str) -> PatchError:
        return PatchError(f"line {self._at + 1}: {reason}")

    def _names_follow(self) -> bool:
        after = self._lines[self._at + 1] if self._at + 1 < len(self._lines) else ""
        return self._line().startswith("--- ") and after.startswith("+++ ")

    def _git(self) -> FilePatch | None:
        """A file with git's extended header."""
        header = _Header(_both(self._line().removeprefix("diff --git ").rstrip("\r")))
        self._at += 1
        while self._at < len(self._lines) and not self._names_follow():
            line = self._line().rstrip("\r")
            if line.startswith(("diff --git ", "@@ ")):
                break
            if line.startswith(("GIT binary patch", "Binary files ")):
                raise self._wrong("changes of binary files are not supported: write the file")
            self._extend(header, line)
            self._at += 1
        return self._file(header)

    def _extend(self, header: _Header, line: str) -> None:
        """Raises: PatchError."""
        for word in ("new file mode ", "deleted file mode ", "new mode "):
            if line.startswith(word):
                mode = line.removeprefix(word)
                if not re.fullmatch("100[0-7]{3}", mode):
                    raise self._wrong(f"not a regular file: {line[:100]}")
                header.makes |= word == "new file mode "
                header.removes |= word == "deleted file mode "
                if not header.removes:
                    header.mode = int(mode[-3:], 8)
        for word in ("rename", "copy"):
            if line.startswith(f"{word} from "):
                header.old = self._name(line.removeprefix(f"{word} from "))
            elif line.startswith(f"{word} to "):
                header.new = self._name(line.removeprefix(f"{word} to "))
                header.renames, header.copies = True, word == "copy"

    def _file(self, header: _Header) -> FilePatch | None:
        """The two names, if they follow, and the hunks."""
        named = self._names_follow()
        if named:
            old = self._name(self._line().removeprefix("--- "))
            self._at += 1
            new = self._name(self._line().removeprefix("+++ "))
            self._at += 1
            if not header.renames:
                header.old, header.new = _stripped(old, new)
            if header.old is None and header.new is None:
                raise self._wrong("both names are /dev/null")
        hunks: list[Hunk] = []
        while _HUNK.match(self._line()):
            hunks.append(self._hunk())
        if named and not hunks:
            raise self._wrong("a hunk must follow: `@@ -LINE,COUNT +LINE,COUNT @@`")
        return header.finished(hunks, named)

    def _name(self, text: str) -> str | None:
        """A file's name; None for `/dev/null`. Raises: PatchError."""
        text = text.rstrip("\r")
        if len(text) > _LONGEST_NAME:
            raise self._wrong("a file's name is too long")
        quoted = _QUOTED.match(text)
        name = _unquoted(quoted[1]) if quoted else text.partition("\t")[0].rstrip()
        if not name:
            raise self._wrong("a file's name is missing")
        return None if name == _NOTHING else name

    def _hunk(self) -> Hunk:
        """Raises: PatchError."""
        header = self._line()
        found = _HUNK.match(header)
        assert found is not None  # noqa: S101 - the caller has looked
        self._hunks += 1
        if self._hunks > MOST_HUNKS:
            raise self._wrong(f"more than {MOST_HUNKS} hunks")
        start = int(found[1])
        counts = [int(found[2] or "1"), int(found[4] or "1")]
        old: list[bytes] = []
        new: list[bytes] = []
        self._at += 1
        while len(old) < counts[0] or len(new) < counts[1]:
            if self._at >= len(self._lines):
                raise self._wrong(f"the hunk {header[:80]} ends before its counts are reached")
            self._take(self._line(), old, new)
            self._at += 1
            self._take_end(old, new)
        if len(old) > counts[0] or len(new) > counts[1]:
            raise self._wrong(f"the hunk {header[:80]} has more lines than its counts")
        return Hunk(header.rstrip("\r")[:200], start, tuple(old), tuple(new))

    def _take(self, line: str, old: list[bytes], new: list[bytes]) -> None:
        tag = line[:1] or " "  # programs remove the space of an empty line
        if tag not in " -+":
            raise self._wrong("each line of a hunk begins with a space, - or +")
        data = line[1:].encode("utf-8", "surrogateescape") + b"\n"
        if tag != "+":
            old.append(data)
        if tag != "-":
            new.append(data)

    def _take_end(self, old: list[bytes], new: list[bytes]) -> None:
        """A mark says that the line before it has no newline."""
        if not self._line().startswith(_NO_NEWLINE):
            return
        tag = self._lines[self._at - 1][:1] or " "
        for lines, without in ((old, "+"), (new, "-")):
            if tag != without and lines:
                lines[-1] = lines[-1].removesuffix(b"\n")
        self._at += 1


def _stripped(old: str | None, new: str | None) -> tuple[str | None, str | None]:
    """The names without git's prefixes, if all that are there have them."""
    prefixed = (old is None or old.startswith("a/")) and (new is None or new.startswith("b/"))
    if not prefixed:
        return old, new
    return old and old.removeprefix("a/"), new and new.removeprefix("b/")


def _both(text: str) -> tuple[str, str] | None:
    """The names of `diff --git a/NAME b/NAME`, if they are one name."""
    quoted = _QUOTED.match(text) if len(text) <= 2 * _LONGEST_NAME else None
    if quoted:
        name = _unquoted(quoted[1]).removeprefix("a/")
        return (name, name) if name else None
    half = len(text) // 2
    old, new = text[:half], text[half + 1 :]
    if old.startswith("a/") and new.startswith("b/"):
        old, new = old[2:], new[2:]
    return (old, new) if old and old == new else None


def _unquoted(text: str) -> str:
    """A name as git quotes it, with octal bytes and C's escapes, in the form of lists."""
    data = bytearray()
    at = 0
    for escape in _ESCAPED.finditer(text):
        data += text[at : escape.start()].encode("utf-8", "surrogateescape")
        code = escape[1]
        if len(code) == 3:
            data.append(int(code, 8))
        else:
            data += bytes([_ESCAPES[code]]) if code in _ESCAPES else code.encode()
        at = escape.end()
    data += text[at:].encode("utf-8", "surrogateescape")
    return names.shown(data.decode("utf-8", "surrogateescape"))
