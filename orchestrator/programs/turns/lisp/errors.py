"""Errors of Lisp programs: what is wrong, where, and which functions were being called."""

from typing import NamedTuple, TypeAlias

# Line and column of a form in its text, both from 1.
Place: TypeAlias = tuple[int, int]


class Called(NamedTuple):
    """A function that was being called, and the place in it that was reached."""

    name: str
    line: int
    column: int


class LispError(Exception):
    """A program can't be read, is wrong, failed, or reached a limit.

    `stack` has the functions that were being called, the innermost first.
    """

    def __init__(
        self, message: str, line: int, column: int, stack: tuple[Called, ...] = ()
    ) -> None:
        super().__init__(f"{message} (line {line}, column {column})")
        self.message = message
        self.line = line
        self.column = column
        self.stack = stack


class Problem(Exception):  # noqa: N818
    """What is wrong, before its place is known; it becomes a `LispError`."""

    def __init__(self, message: str, place: Place | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.place = place
