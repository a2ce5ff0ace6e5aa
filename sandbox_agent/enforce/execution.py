"""Calls of execve whose arguments are in memory before the process that makes them exists."""

import ctypes
import os
from collections.abc import Sequence
from typing import Any, NoReturn

from sandbox_agent.enforce.filters.architectures import ARCHITECTURES
from sandbox_agent.enforce.syscalls import checked

_LIBC = ctypes.CDLL(None, use_errno=True)


class Call:
    """One call of execve, ready to be made."""

    def __init__(self, path: str, arguments: Sequence[Any]) -> None:
        self._path = path
        self._arguments = arguments

    def make(self) -> NoReturn:
        """Executes the program. Raises: OSError."""
        _LIBC.syscall(*self._arguments)
        checked(-1, self._path)
        raise AssertionError


def calls(
    machine: str,
    paths: Sequence[str],
    argv: Sequence[str],
    env: dict[str, str],
    cookie: tuple[int, int] | None,
) -> list[Call]:
    """A call for each path; with the filter's cookie, the filter does not report it.

    Raises: ValueError for words with a NUL.
    """
    files = [os.fsencode(path) for path in paths]
    words = [os.fsencode(word) for word in argv]
    variables = [os.fsencode(f"{name}={value}") for name, value in env.items()]
    if any(b"\0" in text for text in (*files, *words, *variables)):
        raise ValueError("embedded null byte")
    vectors = _vector(words), _vector(variables)
    marks = [ctypes.c_long(number) for number in cookie or ()]
    number = ARCHITECTURES[machine].calls["execve"]
    return [
        Call(path, (number, file, *vectors, *marks))
        for path, file in zip(paths, files, strict=True)
    ]


def _vector(texts: list[bytes]) -> Any:
    return (ctypes.c_char_p * (len(texts) + 1))(*texts, None)
